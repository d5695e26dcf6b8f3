"""Parameters and results of every solver, apart from the problem and the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from libra_plan.errors import NoPlanError, TimeLimitError
from libra_plan.planner.optimize.interrupter import Interrupter
from libra_plan.planner.plan import Plan

__all__ = ["SolveParams", "SolveResult", "SolverBackend", "SolverWork", "Termination", "TerminationReason"]


@dataclass(slots=True)
class SolverWork:
    """The work of all solvers so far in one solve, in deterministic seconds."""

    done_s: float = 0.0


class SolverBackend(str, Enum):
    """The solver that chooses the candidates; placement is CP-SAT's in any case."""

    CP_SAT = "cp-sat"
    HIGHS = "highs"
    CBC = "cbc"


@dataclass(frozen=True, slots=True)
class SolveParams:
    """How hard to try. `gap`: stop when the proven relative gap is at most this.

    `deterministic` gives the same plan bit for bit on every run: one worker, a fixed seed and a
    limit in deterministic seconds instead of wall-clock ones.
    """

    time_limit_s: float = 10.0
    gap: float = 1e-5
    deterministic: bool = False
    workers: int = 1
    seed: int = 0
    kept_gap: float = 0.0
    """Relative gap at which a running plan stays as it is, such as the gap it was proven to."""
    move_tolerance: float = 1e-6
    """Relative objective a plan may give up to move fewer tasks."""
    solver: SolverBackend = SolverBackend.CP_SAT
    work: SolverWork | None = field(default=None, compare=False)
    """Where solver calls add up their work, which ends a deterministic solve. `solve` makes one."""
    interrupter: Interrupter | None = field(default=None, compare=False)
    """Follows the search, and may end it early."""

    @property
    def stopped(self) -> bool:
        """Whether the search has been ended from outside."""
        return self.interrupter is not None and self.interrupter.stopped


class TerminationReason(str, Enum):
    """Why a solve ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    TIME_LIMIT = "time-limit"


@dataclass(frozen=True, slots=True)
class Termination:
    """The outcome as a value: reason, a sentence, and the best bound known (None: no bound)."""

    reason: TerminationReason
    detail: str
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class SolveResult:
    """A plan, or None with the reason; a time-out with an incumbent is a plan."""

    plan: Plan | None
    termination: Termination

    def require_plan(self) -> Plan:
        """Return the plan; raise NoPlanError or TimeLimitError when there is none."""
        if self.plan is not None:
            return self.plan
        if self.termination.reason is TerminationReason.TIME_LIMIT:
            raise TimeLimitError(
                "no plan within the time limit",
                got=self.termination.detail,
                way_out="raise --time-limit",
            )
        raise NoPlanError("no plan exists", got=self.termination.detail)

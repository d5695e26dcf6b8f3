"""Choose and place until both agree: master, placement, cut, and again.

A choice that cannot be placed is reduced to the smallest set of tasks that still cannot, and that
set (with everything that needs even more) is forbidden.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from libra_plan.planner.problem import Problem
from libra_plan.planner.solvers.backends import MasterResult
from libra_plan.planner.solvers.base import SolveParams
from libra_plan.planner.solvers.focus import Focus
from libra_plan.planner.solvers.placement import TaskPlacement, place
from libra_plan.planner.solvers.rows import Choice, Row, cut_row
from libra_plan.planner.solvers.worth import TaskCandidates

__all__ = ["Budget", "Placed", "Search"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Seconds left of a limit, by a clock the caller gives."""

    clock: Callable[[], float]
    ends: float

    @classmethod
    def of(cls, seconds: float, clock: Callable[[], float]) -> Budget:
        """Start a budget now."""
        return cls(clock, clock() + seconds)

    @property
    def left_s(self) -> float:
        """Give what is left, never below a hundredth: every step may at least look at its hint."""
        return max(0.01, self.ends - self.clock())

    @property
    def spent(self) -> bool:
        """Tell whether the limit has passed."""
        return self.clock() >= self.ends


@dataclass(frozen=True, slots=True)
class Placed:
    """A choice that has been placed."""

    choice: Choice
    placements: dict[int, TaskPlacement]


@dataclass(slots=True)
class Search:
    """One problem's candidates and rows, and the cuts learned so far."""

    problem: Problem
    tasks: Sequence[TaskCandidates]
    rows: list[Row]
    params: SolveParams
    budget: Budget
    focus: Focus | None = None
    """Given when `tasks` hold only candidates near the best; its bound is that of all."""
    cuts: int = 0
    _known: dict[tuple[tuple[int, int], ...], dict[int, TaskPlacement] | None] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Tell whether nothing more may be tried: the limit has passed, or somebody ended the search."""
        return self.params.stopped or (self.budget.spent and not self.params.deterministic)

    def step_s(self) -> float:
        """Give the limit for one solver call: what is left, or all of it when deterministic.

        Deterministic limits count solver work, so they must not depend on the clock.
        """
        return self.params.time_limit_s if self.params.deterministic else self.budget.left_s

    def place(self, choice: Choice) -> Placed | None:
        """Place a choice, remembering what was tried."""
        key = tuple(sorted(choice.items()))
        if key not in self._known:
            self._known[key] = place(self.problem, self.tasks, choice, self.params, limit_s=self.step_s())
        placements = self._known[key]
        return None if placements is None else Placed(dict(key), placements)

    def until_placed(self, choose: Callable[[], MasterResult]) -> tuple[MasterResult, Placed | None]:
        """Ask for the best choice, cut it when it cannot be placed, and ask again."""
        while True:
            result = choose()
            if self.cuts and not all(each.exact for each in self.tasks):
                # a dropped column might be placed where the one that was cut for it cannot
                result = replace(result, bound=math.inf, optimal=False, infeasible=False)
            if result.choice is None:
                return result, None
            placed = self.place(result.choice)
            if placed is not None:
                return result, placed
            self.rows.append(
                cut_row(self.tasks, self._smallest_conflict(result.choice), self.problem.cluster)
            )
            self.cuts += 1
            if self.ended:
                return MasterResult(None, result.bound, optimal=False), None

    def _smallest_conflict(self, choice: Choice) -> Choice:
        """Drop tasks from an unplaceable choice as long as it stays unplaceable."""
        conflict = dict(choice)
        for t in list(conflict):
            fewer = {other: c for other, c in conflict.items() if other != t}
            if self.ended:
                break
            if fewer and self.place(fewer) is None:
                conflict = fewer
        return conflict

"""The solvers of the master problem behind one call: CP-SAT, HiGHS over many configurations, or PuLP's.

All take the same tasks, constraints and values and return the same result type, so one can check another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libra_plan.planner.optimize.base import SolveParams, SolverBackend
from libra_plan.planner.optimize.constraints import At, Choice, Constraint
from libra_plan.planner.optimize.objective import TaskCandidates

__all__ = ["MANY", "MasterResult", "are_many", "bound_name", "maximise"]

MANY = 300
"""Candidates up to which CP-SAT over all of them proves more, sooner."""


@dataclass(frozen=True, slots=True)
class MasterResult:
    """The chosen candidates and the bound on every choice (in the values given, rounding included).

    `choice` is None when nothing was found in time; `infeasible` when nothing exists.
    """

    choice: Choice | None
    bound: float
    optimal: bool
    infeasible: bool = False


def are_many(tasks: Sequence[TaskCandidates], params: SolveParams) -> bool:
    """Whether the candidates are so many that they are narrowed by the LP's dual prices first."""
    return params.solver is SolverBackend.CP_SAT and sum(len(each.candidates) for each in tasks) > MANY


def bound_name(tasks: Sequence[TaskCandidates], params: SolveParams) -> str:
    """Return the name of the solver that proves the result of `maximise`."""
    return SolverBackend.HIGHS.value if are_many(tasks, params) else params.solver.value


def maximise(
    tasks: Sequence[TaskCandidates],
    constraints: Sequence[Constraint],
    values: Mapping[At, float],
    params: SolveParams,
    *,
    limit_s: float,
    hint: Choice | None = None,
    known_bound: float | None = None,
    reported: bool = False,
) -> MasterResult:
    """Choose candidates of the largest total value within the constraints; any choice if no values are given.

    `params.solver` says by which solver. `known_bound` (the LP's) lets the search stop as soon as it
    is near enough. `reported`: the values are the policy's objective, so `params.interrupter` is told.
    """
    if are_many(tasks, params):
        from libra_plan.planner.optimize.restricted_master import solve_restricted as solve
    elif params.solver is SolverBackend.CP_SAT:
        from libra_plan.planner.optimize.cpsat import solve_cpsat as solve  # a solver that is not needed
    else:
        from libra_plan.planner.optimize.milp import solve_milp as solve  # is not loaded
    return solve(
        tasks,
        constraints,
        values,
        params,
        limit_s=limit_s,
        hint=hint,
        known_bound=known_bound,
        reported=reported,
    )

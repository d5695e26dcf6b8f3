"""The master's solvers behind one call: CP-SAT, or HiGHS and CBC through PuLP.

All get the same tasks, rows and values and answer in the same words, so that one can check another.
Thousands of candidates are first narrowed by prices (`milp_wide`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libra_plan.planner.optimize.base import Backend, SolveParams
from libra_plan.planner.optimize.constraints import At, Choice, Row
from libra_plan.planner.optimize.objective import TaskCandidates

__all__ = ["MANY", "MasterResult", "are_many", "bound_name", "maximise"]

MANY = 2_000
"""Candidates up to which CP-SAT over all of them proves more, sooner."""


@dataclass(frozen=True, slots=True)
class MasterResult:
    """The chosen candidates and what no choice can exceed (in the values given, rounding included).

    `choice` is None when nothing was found in time; `infeasible` when nothing exists.
    """

    choice: Choice | None
    bound: float
    optimal: bool
    infeasible: bool = False


def are_many(tasks: Sequence[TaskCandidates], params: SolveParams) -> bool:
    """Tell whether candidates are narrowed by prices first, which no deterministic second counts."""
    if params.solver is not Backend.CP_SAT or params.deterministic:
        return False
    return sum(len(each.candidates) for each in tasks) > MANY


def bound_name(tasks: Sequence[TaskCandidates], params: SolveParams) -> str:
    """Name who proves what `maximise` answers."""
    return "prices" if are_many(tasks, params) else params.solver.value


def maximise(
    tasks: Sequence[TaskCandidates],
    rows: Sequence[Row],
    values: Mapping[At, float],
    params: SolveParams,
    *,
    limit_s: float,
    hint: Choice | None = None,
    known_bound: float | None = None,
    reported: bool = False,
) -> MasterResult:
    """Choose candidates of the largest total value within the rows; any choice when there are no values.

    `params.solver` says by which solver. `known_bound` (the LP's) lets the search stop as soon as it
    is near enough. `reported`: the values are the policy's objective, so whoever looks on is told.
    """
    if are_many(tasks, params):
        from libra_plan.planner.optimize.milp_wide import maximise as ask
    elif params.solver is Backend.CP_SAT:
        from libra_plan.planner.optimize.cpsat import maximise as ask  # a solver nobody asks for
    else:
        from libra_plan.planner.optimize.milp import maximise as ask  # is not loaded
    return ask(
        tasks,
        rows,
        values,
        params,
        limit_s=limit_s,
        hint=hint,
        known_bound=known_bound,
        reported=reported,
    )

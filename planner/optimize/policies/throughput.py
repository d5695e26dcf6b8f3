"""`throughput` and `priority`: the largest sum of weighted, normalised throughput, less switching costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from libra_plan.planner.optimize.backends import bound_name
from libra_plan.planner.optimize.constraints import Choice
from libra_plan.planner.optimize.master import Search
from libra_plan.planner.optimize.objective import plan_value, values_of
from libra_plan.planner.optimize.policies.base import (
    PolicyResult,
    best_choice,
    relaxation,
    report_progress,
)
from libra_plan.planner.optimize.policies.requirements import require
from libra_plan.planner.optimize.restricted_master import Restriction
from libra_plan.planner.problem import Problem

__all__ = ["Priority", "Throughput", "best_sum"]


@dataclass(frozen=True, slots=True)
class Throughput:
    """Maximise Σ weight · normalised throughput − switch cost."""

    def parts(self, problem: Problem) -> Sequence[frozenset[str]]:
        """Plan all tasks at once."""
        return (frozenset(problem.task_of),)

    def plan(self, search: Search, hint: Choice | None) -> PolicyResult:
        """Find the best sum within what tasks require."""
        required = require(search, hint)
        found = best_sum(search, required.hint or hint)
        return replace(found, passes=required.passes, missed=required.missed)

    def objective(self, search: Search, choice: Choice) -> float:
        """Sum the values."""
        return plan_value(search.tasks, choice)

    def rank(self, search: Search, choice: Choice) -> tuple[float, ...]:
        """Compare sums."""
        return (plan_value(search.tasks, choice),)


def best_sum(search: Search, hint: Choice | None) -> PolicyResult:
    """Maximise the sum of values within the constraints, with the LP's bound and the master's own."""
    if search.restriction is not None:
        return _restricted_sum(search, search.restriction)
    relaxed = relaxation(search)
    bounds, duals, known = {}, {}, None
    if relaxed is not None:
        bounds["lp"], duals, known = relaxed.value, relaxed.duals, relaxed.value
    result, placed = search.until_placed(
        lambda: best_choice(search, values_of(search.tasks), (), hint, known_bound=known, reported=True)
    )
    if result.bound < math.inf and not result.infeasible:
        bounds[bound_name(search.tasks, search.params)] = result.bound
    return PolicyResult(placed, bounds, (), result.infeasible, duals=duals)


def _restricted_sum(search: Search, known: Restriction) -> PolicyResult:
    """Place the choice made over all configurations; search near it when it cannot be, or is too far off."""
    bounds = {"lp": known.lp_bound, **({"highs": known.bound} if known.bound < known.lp_bound else {})}
    report_progress(search, None, known.bound)
    placed = search.place(known.choice) or search.with_more_moves(known.choice)
    value = plan_value(search.tasks, placed.choice if placed is not None else known.choice)
    if placed is None or known.bound - value > search.params.gap * max(abs(value), 1e-9):
        _, other = search.until_placed(
            lambda: best_choice(
                search, values_of(search.tasks), (), known.choice, known_bound=known.bound, reported=True
            )
        )
        placed = other or placed
    return PolicyResult(placed, bounds, duals=known.duals)


@dataclass(frozen=True, slots=True)
class Priority(Throughput):
    """`priority`: maximise the sum of the first tier, then that of the next beside it, and so on.

    Tiers are planned one after the other, each for the largest sum, with the configurations of the tiers
    above fixed. A tier is planned from its own tasks and those above alone (fair shares are those within a
    tier), so removing a lower tier cannot change it. Only the GPUs a fixed configuration lies on may still
    change, so that the others find room.
    """

    def parts(self, problem: Problem) -> Sequence[frozenset[str]]:
        """Plan tier by tier, from 0 on."""
        tiers = sorted({task.tier for task in problem.tasks})
        return tuple(frozenset(task.id for task in problem.tasks if task.tier == tier) for tier in tiers)

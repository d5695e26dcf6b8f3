"""`throughput`: the largest sum of weighted, normalised throughput, less what switching costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from libra_plan.planner.optimize.constraints import Choice
from libra_plan.planner.optimize.lp import lp_bound
from libra_plan.planner.optimize.master import Search
from libra_plan.planner.optimize.policies.base import Outcome, ask, prover, report, total_worth, wide, worths
from libra_plan.planner.optimize.policies.requirements import require
from libra_plan.planner.problem import Problem

__all__ = ["Throughput", "best_sum"]


@dataclass(frozen=True, slots=True)
class Throughput:
    """Maximise Σ weight · normalised throughput − switch cost."""

    def parts(self, problem: Problem) -> Sequence[frozenset[str]]:
        """Plan all tasks at once."""
        return (frozenset(problem.task_of),)

    def plan(self, search: Search, hint: Choice | None) -> Outcome:
        """Find the best sum within what tasks require."""
        required = require(search, hint)
        found = best_sum(search, required.hint or hint)
        return replace(found, passes=required.passes, missed=required.missed)

    def objective(self, search: Search, choice: Choice) -> float:
        """Sum the worths."""
        return total_worth(search, choice)

    def rank(self, search: Search, choice: Choice) -> tuple[float, ...]:
        """Compare sums."""
        return (total_worth(search, choice),)


def best_sum(search: Search, hint: Choice | None) -> Outcome:
    """Maximise the sum of worths within the rows, with the LP's bound and the master's own."""
    if search.focus is not None:
        return _near_focus(search, search.focus.bound, hint or {})
    bounds: dict[str, float] = {}
    relaxed = None if wide(search) else lp_bound(search.tasks, search.rows)
    if relaxed is not None:
        bounds["lp"] = relaxed
    report(search, None, relaxed)
    result, placed = search.until_placed(
        lambda: ask(search, worths(search), (), hint, known_bound=relaxed, reported=True)
    )
    if result.bound < float("inf") and not result.infeasible:
        bounds[prover(search)] = result.bound
    return Outcome(placed, bounds, (), result.infeasible)


def _near_focus(search: Search, bound: float, chosen: Choice) -> Outcome:
    """Place the choice made over all configurations; search near it when it cannot be, or is too far off."""
    bounds = {"configurations": bound}
    report(search, None, bound)
    placed = search.place(chosen)
    value = total_worth(search, chosen)
    if placed is not None and bound - value <= search.params.gap * max(abs(value), 1e-9):
        return Outcome(placed, bounds)
    _, other = search.until_placed(
        lambda: ask(search, worths(search), (), chosen, known_bound=bound, reported=True)
    )
    return Outcome(other or placed, bounds)

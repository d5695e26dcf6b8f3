"""Aging under max-min, where sums come last: tasks that have waited too long run first.

Elsewhere waiting adds to a task's weight (`objective.urgency`), which is enough: a task that is
left out again and again at last has a higher value than the others together.
"""

from __future__ import annotations

from libra_plan.planner.optimize.constraints import Choice, run_in
from libra_plan.planner.optimize.master import Search
from libra_plan.planner.optimize.policies.base import best_choice

__all__ = ["run_overdue"]


def run_overdue(search: Search, hint: Choice | None) -> Choice | None:
    """Demand that tasks queued for `aging_s` and more run: those that have waited longest together."""
    aging_s = search.problem.aging_s
    if aging_s is None:
        return None
    overdue = [t for t, each in enumerate(search.tasks) if not each.running and each.task.waited_s >= aging_s]
    values = {
        (t, c): search.tasks[t].task.waited_s for t in overdue for c in range(len(search.tasks[t].candidates))
    }
    if not values:
        return None
    _, placed = search.until_placed(lambda: best_choice(search, values, (), hint))
    if placed is None:
        return None
    search.constraints += [
        run_in(f"aging:{search.tasks[t].task.id}", t, range(len(search.tasks[t].candidates)), "aging")
        for t in overdue
        if t in placed.choice
    ]
    return placed.choice

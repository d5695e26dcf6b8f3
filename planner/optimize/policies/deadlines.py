"""Deadlines: constraints under every policy, and the least relaxation of those that cannot be kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from libra_plan.planner.optimize.baselines import keeps_all
from libra_plan.planner.optimize.constraints import Choice, Constraint, run_in
from libra_plan.planner.optimize.master import Search
from libra_plan.planner.optimize.policies.base import BestRates, best_choice, most
from libra_plan.planner.plan import DeadlineSlack
from libra_plan.planner.problem import Task

__all__ = ["keep_deadlines", "slack_of", "wanted_steps_per_s"]

_SAME = 1e-9
_PLAN = 0.7  # of the time, for the plan: what missed deadlines might have had is told as far as the rest goes


def wanted_steps_per_s(task: Task, *, moved: bool) -> float:
    """Return the rate a task must have, steps/s: 0 without a deadline, infinite when a move takes it all."""
    rates = [task.min_steps_per_s or 0.0]
    if task.deadline is not None:
        left_s = task.deadline.within_s - (task.restart_s if moved else 0.0)
        rates.append(task.deadline.steps / left_s if left_s > 0 else math.inf)
    return max(rates)


def keep_deadlines(search: Search, hint: Choice | None) -> tuple[dict[int, BestRates], Choice | None]:
    """Demand every deadline, or as many as can be kept at once (heavier tasks' among equals).

    Returns the tasks whose deadlines are given up, with the best rate each could have, and a choice
    that keeps the others.
    """
    wanted = [t for t, each in enumerate(search.tasks) if wanted_steps_per_s(each.task, moved=False) > 0]
    if not wanted:
        return {}, None
    good = {t: _in_time(search, t) for t in wanted}
    if all(good.values()):
        rows = [_row(search, t, good[t]) for t in wanted]
        _, placed = search.until_placed(lambda: best_choice(search, {}, rows, hint))
        if placed is not None:
            search.constraints += rows
            return {}, placed.choice
    met, best = most(search, good, hint)
    search.constraints += [_row(search, t, good[t]) for t in met]
    missed = _best_rates(search, [t for t in wanted if t not in met])
    return missed, best.choice if best else None


def _best_rates(search: Search, tasks: Iterable[int]) -> dict[int, BestRates]:
    """Find the best rate of each task, within a part of the time: the plan comes first."""
    ends_s = _PLAN * search.step_s()
    return {
        t: BestRates(_best_alone(search, t), _best_beside(search, t))
        if search.step_s() >= ends_s
        else BestRates(None, None)
        for t in tasks
    }


def _row(search: Search, t: int, good: tuple[int, ...]) -> Constraint:
    return run_in(f"deadline:{search.tasks[t].task.id}", t, good, "deadline")


def _in_time(search: Search, t: int) -> tuple[int, ...]:
    each = search.tasks[t]
    needed = {moved: wanted_steps_per_s(each.task, moved=moved) * (1 - _SAME) for moved in (False, True)}
    return tuple(
        c
        for c, entry in enumerate(each.candidates)
        if entry.configuration.steps_per_s >= needed[each.running and entry.held is None]
    )


def _best_alone(search: Search, t: int) -> float | None:
    """Return the best rate of the task alone on the cluster, within limits such as the budget."""
    limits = [
        row for row in search.constraints if row.limit >= 0
    ]  # the other constraints demand that another task runs
    entries = search.tasks[t].candidates
    for c in sorted(range(len(entries)), key=lambda c: -entries[c].configuration.steps_per_s):
        if search.ended:
            return None
        if keeps_all(limits, {t: c}) and search.place({t: c}) is not None:
            return entries[c].configuration.steps_per_s
    return 0.0


def _best_beside(search: Search, t: int) -> float | None:
    """Return the best rate of the task while every deadline that is kept stays so."""
    rates = {(t, c): entry.configuration.steps_per_s for c, entry in enumerate(search.tasks[t].candidates)}
    if not rates:
        return 0.0
    if search.ended:
        return None
    result, placed = search.until_placed(lambda: best_choice(search, rates, (), None))
    if placed is None or not result.optimal:
        return None
    return rates.get((t, placed.choice.get(t, -1)), 0.0)


def slack_of(
    search: Search,
    among: Iterable[int],
    choice: Choice,
    moved: Mapping[int, bool],
    missed: Mapping[int, BestRates],
) -> list[DeadlineSlack]:
    """List the deadlines of some tasks that a choice does not keep."""
    found = []
    for t in among:
        each = search.tasks[t]
        wanted = wanted_steps_per_s(each.task, moved=moved.get(t, False))
        rate = each.candidates[choice[t]].configuration.steps_per_s if t in choice else 0.0
        if rate < wanted * (1 - _SAME):
            best = missed.get(t, BestRates(None, None))
            asked = wanted if math.isfinite(wanted) else None
            found.append(DeadlineSlack(each.task.id, asked, rate, best.alone, best.beside))
    return found

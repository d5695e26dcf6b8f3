"""`max-min`: the worst task first, then the second worst, and so on; the sum decides what is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from libra_plan.planner.optimize.backends import MasterResult, are_many, bound_name
from libra_plan.planner.optimize.constraints import Choice, Constraint, level_floor
from libra_plan.planner.optimize.master import Placed, Search
from libra_plan.planner.optimize.objective import plan_value, throughputs, values_of
from libra_plan.planner.optimize.policies.base import (
    PolicyResult,
    best_choice,
    relaxation,
    report_progress,
)
from libra_plan.planner.optimize.policies.requirements import require, run_overdue
from libra_plan.planner.problem import Problem

__all__ = ["MaxMin"]

_LEVELS = 0.3  # of the time is kept for the sum, however many levels are left
_PART = 0.2


@dataclass(frozen=True, slots=True)
class MaxMin:
    """Maximise normalised throughputs leximin, with the sum as the last objective."""

    def parts(self, problem: Problem) -> Sequence[frozenset[str]]:
        """Plan all tasks at once."""
        return (frozenset(problem.task_of),)

    def plan(self, search: Search, hint: Choice | None) -> PolicyResult:
        """Find the largest sorted vector of throughputs within what tasks require."""
        required = require(search, hint)
        aged = run_overdue(search, required.hint or hint)
        found = _leximin(search, aged or required.hint or hint)
        return replace(found, passes=required.passes, missed=required.missed)

    def objective(self, search: Search, choice: Choice) -> float:
        """Return the least throughput of a task that can run."""
        return throughputs(search.tasks, choice)[0]

    def rank(self, search: Search, choice: Choice) -> tuple[float, ...]:
        """Compare the sorted throughputs, then the sums."""
        levels = throughputs(search.tasks, choice)
        return (*(round(level, 9) for level in levels), plan_value(search.tasks, choice))


def _leximin(search: Search, hint: Choice | None) -> PolicyResult:
    """Raise the worst task, then the second worst, and so on; then maximise the sum.

    Levels are found in order: the highest level that all but k tasks reach, then the fewest tasks
    that must stay at it, which become the next k. Each is a promise the later steps keep, so the
    sorted vector of throughputs is the largest there is, compared from its smallest entry. The
    bounds are those of the first level, the one the objective of a max-min plan is. Tasks that
    cannot run at all take no part.
    """
    able = [t for t, each in enumerate(search.tasks) if each.candidates]
    bounds: dict[str, float] = {}
    relaxed = relaxation(search, able)
    if relaxed is not None:
        bounds["lp"] = relaxed.value
    promises: tuple[Constraint, ...] = ()
    placed: Placed | None = None
    below = 0
    levels_end_s = _LEVELS * search.step_s()
    while below < len(able) and not search.ended and (below == 0 or search.step_s() > levels_end_s):
        ceiling = relaxed.value if relaxed is not None and below == 0 else None
        level, bound, found = _highest_level(search, len(able) - below, promises, ceiling, placed)
        if below == 0:
            bounds[bound_name(search.tasks, search.params)] = bound
            report_progress(search, level, bound)
        if found is not None:
            promises = (*promises, level_floor(search.tasks, level, len(able) - below))
        # no level is reached by all that are left: some must wait, at 0, and as few as can be
        placed, above = _most_above(search, level if found else 0.0, promises, found or placed)
        above = min(above, len(able) - below - 1)  # one stays at the level, whatever was not proven
        if placed is None or above <= 0:
            break
        promises = (*promises, level_floor(search.tasks, _just_above(level if found else 0.0), above))
        below = len(able) - above
    _, best = search.until_placed(
        lambda: best_choice(search, values_of(search.tasks), promises, placed.choice if placed else hint)
    )
    duals = {} if relaxed is None else relaxed.duals
    return PolicyResult(best or placed, bounds, promises, duals=duals)


def _just_above(level: float) -> float:
    return level * (1 + 1e-9) + 1e-12


def _highest_level(
    search: Search, tasks: int, promises: tuple[Constraint, ...], ceiling: float | None, known: Placed | None
) -> tuple[float, float, Placed | None]:
    """Find the highest level that so many tasks reach, by bisection over the levels there are.

    Returns (level, bound, placed choice). What a task reaches is one of finitely many values, so a
    level proven out of reach bounds the answer by the next lower value. `known` is a choice that keeps
    the promises: from what it reaches on, steps double until one is too long. Only the choice of the
    highest level is placed; where it cannot be, what is below is looked at again.
    """
    levels = sorted({entry.normalised for each in search.tasks for entry in each.candidates})
    if ceiling is not None:
        levels = [level for level in levels if level <= ceiling]
    low, high, proven = 0, len(levels), len(levels)  # levels[:low] are reached, levels[proven:] cannot be
    best, step = known, 1 if known is not None else len(levels)
    if known is not None:
        low = _reached(levels, search, known.choice, tasks)
    chosen: MasterResult | None = None  # reaches levels[:low], and is not placed yet
    while not search.ended and (low < high or chosen is not None):
        if low < high:
            middle = min(low + step - 1, (low + high) // 2)
            result = search.believed(_any(search, _demand(search, promises, levels[middle], tasks)))
            if result.choice is not None:
                chosen, step = result, 2 * step
                low = max(middle + 1, _reached(levels, search, result.choice, tasks))
            else:
                high, step = middle, len(levels)
        else:
            result, placed = _placed(search, _demand(search, promises, levels[low - 1], tasks), chosen)
            if placed is not None:
                return levels[low - 1], levels[proven - 1], placed
            chosen, high, low = (
                None,
                low - 1,
                0 if best is None else _reached(levels, search, best.choice, tasks),
            )
        proven = min(proven, high) if result.infeasible else proven
    reached = 0 if best is None else _reached(levels, search, best.choice, tasks)
    return levels[reached - 1] if reached else 0.0, levels[proven - 1] if proven else 0.0, best


def _demand(
    search: Search, promises: tuple[Constraint, ...], level: float, tasks: int
) -> tuple[Constraint, ...]:
    return (*promises, level_floor(search.tasks, level, tasks))


def _any(search: Search, demand: tuple[Constraint, ...]) -> MasterResult:
    """Find any choice; where there are many candidates, a level may not take all the time that is left."""
    return best_choice(
        search,
        {},
        demand,
        None,
        limit_s=_PART * search.step_s() if are_many(search.tasks, search.params) else math.inf,
    )


def _placed(
    search: Search, demand: tuple[Constraint, ...], chosen: MasterResult | None
) -> tuple[MasterResult, Placed | None]:
    """Place a choice, or another one that keeps the demand."""
    known = [chosen] if chosen is not None else []
    return search.until_placed(lambda: known.pop() if known else _any(search, demand))


def _reached(levels: Sequence[float], search: Search, choice: Choice, tasks: int) -> int:
    """Count the levels that so many tasks reach in a choice."""
    reached = throughputs(search.tasks, choice)[-tasks]
    return sum(1 for level in levels if level <= reached)


def _most_above(
    search: Search, level: float, promises: tuple[Constraint, ...], found: Placed | None
) -> tuple[Placed | None, int]:
    """Find the most tasks that can be above a level at once, promises kept."""
    higher = {
        (t, c): 1.0
        for t, each in enumerate(search.tasks)
        for c, entry in enumerate(each.candidates)
        if entry.normalised >= _just_above(level)
    }
    if not higher:
        return found, 0
    hint = found.choice if found else None
    _, placed = search.until_placed(lambda: best_choice(search, higher, promises, hint))
    placed = placed or found
    if placed is None:
        return None, 0
    return placed, sum(1 for each in throughputs(search.tasks, placed.choice) if each >= _just_above(level))

"""What each policy asks of the master: the sum, or the worst task first."""

from __future__ import annotations

from dataclasses import dataclass

from libra_plan.planner.solvers.backends import MasterResult, maximise
from libra_plan.planner.solvers.lp import lp_bound, lp_worst_bound
from libra_plan.planner.solvers.master import Placed, Search
from libra_plan.planner.solvers.rows import At, Choice, Row, count_row

__all__ = ["Outcome", "max_min", "normalised", "throughput", "worths"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A placed choice with what is proven about the policy's objective.

    `promises` are rows that later passes must keep; `bounds` are named.
    """

    placed: Placed | None
    bounds: dict[str, float]
    promises: tuple[Row, ...] = ()
    infeasible: bool = False


def worths(search: Search) -> dict[At, float]:
    """Map every candidate to its worth."""
    return {
        (t, c): entry.worth for t, each in enumerate(search.tasks) for c, entry in enumerate(each.candidates)
    }


def normalised(search: Search, choice: Choice) -> list[float]:
    """List the normalised throughput of every task that can run, lowest first; queued counts as 0."""
    return sorted(
        each.candidates[choice[t]].normalised if t in choice else 0.0
        for t, each in enumerate(search.tasks)
        if each.candidates
    )


def throughput(search: Search, hint: Choice | None) -> Outcome:
    """Maximise Σ weight · normalised throughput − switch cost."""
    if search.focus is not None:
        return _near_focus(search, search.focus.bound, hint or {})
    bounds: dict[str, float] = {}
    relaxed = lp_bound(search.tasks, search.rows)
    if relaxed is not None:
        bounds["lp"] = relaxed
    _report(search, None, relaxed)
    result, placed = search.until_placed(
        lambda: _ask(search, worths(search), (), hint, known_bound=relaxed, reported=True)
    )
    if result.bound < float("inf") and not result.infeasible:
        bounds[search.params.solver.value] = result.bound
    return Outcome(placed, bounds, (), result.infeasible)


def _near_focus(search: Search, bound: float, chosen: Choice) -> Outcome:
    """Place the choice made over all columns; search near it when it cannot be, or is too far off."""
    bounds = {"columns": bound}
    _report(search, None, bound)
    placed = search.place(chosen)
    value = sum(search.tasks[t].candidates[c].worth for t, c in chosen.items())
    if placed is not None and bound - value <= search.params.gap * max(abs(value), 1e-9):
        return Outcome(placed, bounds)
    _, other = search.until_placed(
        lambda: _ask(search, worths(search), (), chosen, known_bound=bound, reported=True)
    )
    return Outcome(other or placed, bounds)


def _ask(
    search: Search,
    values: dict[At, float],
    promises: tuple[Row, ...],
    hint: Choice | None,
    known_bound: float | None = None,
    reported: bool = False,
) -> MasterResult:
    return maximise(
        search.tasks,
        [*search.rows, *promises],
        values,
        search.params,
        limit_s=search.step_s(),
        hint=hint,
        known_bound=known_bound,
        reported=reported,
    )


def _report(search: Search, objective: float | None, bound: float | None) -> None:
    if search.params.watch is not None:
        search.params.watch.report(objective, bound)


def max_min(search: Search, hint: Choice | None) -> Outcome:
    """Raise the worst task, then the second worst, and so on; then maximise the sum.

    Levels are found in order: the highest level that all but k tasks reach, then the fewest tasks
    that must stay at it, which become the next k. Each is a promise the later steps keep, so the
    sorted vector of throughputs is the largest there is, compared from its smallest entry. The
    bounds are those of the first level, the one the objective of a max-min plan is. Tasks that
    cannot run at all take no part.
    """
    able = [t for t, each in enumerate(search.tasks) if each.candidates]
    bounds: dict[str, float] = {}
    relaxed = lp_worst_bound(search.tasks, search.rows, able)
    if relaxed is not None:
        bounds["lp"] = relaxed
    _report(search, None, relaxed)
    promises: tuple[Row, ...] = ()
    placed: Placed | None = None
    below = 0
    while below < len(able) and not search.ended:
        ceiling = relaxed if below == 0 else None
        level, bound, found = _highest_level(search, len(able) - below, promises, ceiling)
        if below == 0:
            bounds[search.params.solver.value] = bound
            _report(search, level, bound)
        if found is not None:
            promises = (*promises, count_row(search.tasks, level, len(able) - below))
        # no level is reached by all that are left: some must wait, at 0, and as few as can be
        placed, above = _most_above(search, level if found else 0.0, promises, found or placed)
        above = min(above, len(able) - below - 1)  # one stays at the level, whatever was not proven
        if placed is None or above <= 0:
            break
        promises = (*promises, count_row(search.tasks, _just_above(level if found else 0.0), above))
        below = len(able) - above
    _, best = search.until_placed(
        lambda: _ask(search, worths(search), promises, placed.choice if placed else hint)
    )
    return Outcome(best or placed, bounds, promises)


def _just_above(level: float) -> float:
    return level * (1 + 1e-9) + 1e-12


def _highest_level(
    search: Search, tasks: int, promises: tuple[Row, ...], ceiling: float | None
) -> tuple[float, float, Placed | None]:
    """Find the highest level that so many tasks reach, by bisection over the levels there are.

    Returns (level, bound, placed choice). What a task reaches is one of finitely many values, so a
    level proven out of reach bounds the answer by the next lower value.
    """
    levels = sorted({entry.normalised for each in search.tasks for entry in each.candidates})
    if ceiling is not None:
        levels = [level for level in levels if level <= ceiling]
    low, high = 0, len(levels)  # levels[:low] are reached, levels[high:] are not
    best: Placed | None = None
    proven = True
    while low < high:
        if search.ended:
            proven = False
            break
        middle = (low + high) // 2
        demand = (*promises, count_row(search.tasks, levels[middle], tasks))
        result, placed = search.until_placed(lambda demand=demand: _ask(search, {}, demand, None))  # type: ignore[misc]
        if placed is None:
            proven &= result.infeasible
            high = middle
            continue
        best = placed
        reached = normalised(search, placed.choice)[-tasks]
        low = max(middle + 1, sum(1 for level in levels if level <= reached))
    level = levels[low - 1] if low else 0.0
    return level, level if proven else (levels[-1] if levels else 0.0), best


def _most_above(
    search: Search, level: float, promises: tuple[Row, ...], found: Placed | None
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
    _, placed = search.until_placed(lambda: _ask(search, higher, promises, hint))
    placed = placed or found
    if placed is None:
        return None, 0
    return placed, sum(1 for each in normalised(search, placed.choice) if each >= _just_above(level))

"""Latency first: step times of marked tasks (evaluations) are minimised before the policy's objective."""

from __future__ import annotations

from libra_plan.planner.optimize.constraints import Choice, Constraint, run_in
from libra_plan.planner.optimize.master import Placed, Search
from libra_plan.planner.optimize.policies.base import best_choice, most
from libra_plan.planner.plan import Pass

__all__ = ["latency_first"]

_SAME = 1e-9


def latency_first(search: Search, hint: Choice | None) -> tuple[tuple[Pass, ...], Choice | None]:
    """Run as many marked tasks as can be, then minimise Σ weight · step time over them.

    Later passes may give each of them other GPUs, never a longer step. Returns the pass made and a
    choice that reaches it.
    """
    marked = [t for t, each in enumerate(search.tasks) if each.task.latency_first and each.candidates]
    if not marked:
        return (), None
    run, placed = most(search, {t: range(len(search.tasks[t].candidates)) for t in marked}, hint)
    if not run or placed is None:
        return (), None
    best, bound_s = _fastest(search, run, placed)
    search.constraints += [_row(search, t, _no_slower(search, t, best.choice)) for t in run]
    return (Pass("latency-first", _total_s(search, run, best.choice), bound_s),), best.choice


def _row(search: Search, t: int, allowed: list[int]) -> Constraint:
    return run_in(f"latency-first:{search.tasks[t].task.id}", t, allowed, "latency")


def _weighted_s(search: Search, t: int, c: int) -> float:
    each = search.tasks[t]
    return each.task.weight * each.candidates[c].configuration.step_time_s.value


def _total_s(search: Search, run: list[int], choice: Choice) -> float:
    return sum(_weighted_s(search, t, choice[t]) for t in run)


def _fastest(search: Search, run: list[int], placed: Placed) -> tuple[Placed, float]:
    """Minimise the total, leaving out what alone takes longer than the best known; give its bound too.

    The master counts in millionths of the largest value, so what cannot be chosen must not be there.
    """
    best, bound_s = placed, 0.0
    while True:
        total_s = _total_s(search, run, best.choice)
        seconds = {
            (t, c): _weighted_s(search, t, c) for t in run for c in range(len(search.tasks[t].candidates))
        }
        within = {at: s for at, s in seconds.items() if s <= total_s * (1 + _SAME)}
        rows = [_row(search, t, [c for u, c in within if u == t]) for t in run]
        values = {at: -s for at, s in within.items()}
        hint = best.choice
        result, found = search.until_placed(
            lambda values=values, rows=rows, hint=hint: best_choice(search, values, rows, hint)  # type: ignore[misc]
        )
        if found is None:
            return best, bound_s
        best, bound_s = found, max(0.0, -result.bound)
        if max(within.values()) <= _total_s(search, run, best.choice) * (1 + _SAME):
            return best, bound_s


def _no_slower(search: Search, t: int, choice: Choice) -> list[int]:
    entries = search.tasks[t].candidates
    limit_s = entries[choice[t]].configuration.step_time_s.value * (1 + _SAME)
    return [c for c, entry in enumerate(entries) if entry.configuration.step_time_s.value <= limit_s]

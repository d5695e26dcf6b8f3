"""Requirements of tasks that come before the policy: deadlines, latency-first step times, long waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from libra_plan.planner.optimize.constraints import Choice, Constraint, run_in
from libra_plan.planner.optimize.master import Placed, Search
from libra_plan.planner.optimize.policies.base import BestRates, best_choice, most
from libra_plan.planner.optimize.policies.deadlines import keep_deadlines
from libra_plan.planner.plan import Pass

__all__ = ["Required", "require", "run_overdue"]

_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Required:
    """Deadlines that cannot be kept, passes made, and a choice that keeps everything required."""

    missed: Mapping[int, BestRates] = field(default_factory=dict)
    passes: tuple[Pass, ...] = ()
    hint: Choice | None = None


def require(search: Search, hint: Choice | None) -> Required:
    """Add the rows that all later passes must keep to the search."""
    missed, kept = keep_deadlines(search, hint)
    passes, fastest = _latency_first(search, kept or hint)
    return Required(missed, passes, fastest or kept)


def run_overdue(search: Search, hint: Choice | None) -> Choice | None:
    """Demand that tasks queued for `aging_s` and more run: those that have waited longest together.

    Max-min needs it, since sums come last there. Elsewhere waiting adds to a task's weight
    (`objective.urgency`), which is enough: a task that is left out again and again at last has a higher
    value than the others together.
    """
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


# ---------------------------------------------------------------- latency first


def _latency_first(search: Search, hint: Choice | None) -> tuple[tuple[Pass, ...], Choice | None]:
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

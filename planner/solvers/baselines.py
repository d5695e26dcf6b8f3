"""The splits people make by hand, on the same columns: what a plan must never be worse than."""

from __future__ import annotations

from collections.abc import Sequence

from libra_plan.models.topology import Cluster
from libra_plan.planner.solvers.rows import Choice, Row
from libra_plan.planner.solvers.worth import TaskCandidates

__all__ = ["equal_split", "fits_rows", "greedy", "keep_running"]


def fits_rows(rows: Sequence[Row], choice: Choice) -> bool:
    """Tell whether a choice keeps every row."""
    return all(
        sum(row.coefficients.get(at, 0.0) for at in choice.items()) <= row.limit + 1e-9 for row in rows
    )


def equal_split(tasks: Sequence[TaskCandidates], rows: Sequence[Row], cluster: Cluster) -> Choice:
    """Give every task the same number of GPUs; each runs its best column that fits in them.

    A task that cannot run in its part, or whose column no longer packs, is left out.
    """
    part = len(cluster.gpus) // max(1, len(tasks))
    choice: Choice = {}
    for t, each in enumerate(tasks):
        fitting = [
            (-entry.normalised, entry.column.gpus, c)
            for c, entry in enumerate(each.candidates)
            if entry.column.gpus <= part and entry.held is None
        ]
        for _, _, c in sorted(fitting):
            if fits_rows(rows, choice | {t: c}):
                choice[t] = c
                break
    return choice


def greedy(tasks: Sequence[TaskCandidates], rows: Sequence[Row]) -> Choice:
    """Raise, again and again, the task whose next column gains most worth per further GPU."""
    choice: Choice = {}
    while True:
        best: tuple[float, int, int] | None = None
        for t, each in enumerate(tasks):
            now = each.candidates[choice[t]] if t in choice else None
            worth, gpus = (now.worth, now.column.gpus) if now else (0.0, 0)
            for c, entry in enumerate(each.candidates):
                more = entry.column.gpus - gpus
                gain = entry.worth - worth
                if gain <= 1e-12:
                    continue
                rate = gain / max(more, 1e-3)
                if (best is None or rate > best[0]) and fits_rows(rows, choice | {t: c}):
                    best = (rate, t, c)
        if best is None:
            return choice
        choice[best[1]] = best[2]


def keep_running(tasks: Sequence[TaskCandidates]) -> Choice:
    """Keep every running task that can stay as it is."""
    held = [(t, [c for c, entry in enumerate(each.candidates) if entry.held]) for t, each in enumerate(tasks)]
    return {t: candidates[0] for t, candidates in held if candidates}

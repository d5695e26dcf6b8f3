"""The splits people make by hand, on the same columns: what a plan must never be worse than."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
    shared = [row for row in rows if not row.name.startswith("one:")]
    left = np.array([row.limit for row in shared]) + 1e-9
    choice: Choice = {}
    for t, each in enumerate(tasks):
        fitting = [
            (-entry.normalised, entry.column.gpus, c)
            for c, entry in enumerate(each.candidates)
            if entry.column.gpus <= part and entry.held is None
        ]
        for _, _, c in sorted(fitting):
            takes = np.array([row.coefficients.get((t, c), 0.0) for row in shared])
            if (takes <= left).all():
                choice[t] = c
                left -= takes
                break
    return choice


def greedy(tasks: Sequence[TaskCandidates], rows: Sequence[Row], begin: Choice | None = None) -> Choice:
    """Raise, again and again, the task whose next column gains most worth per further GPU."""
    entries = [(t, c) for t, each in enumerate(tasks) for c in range(len(each.candidates))]
    if not entries:
        return {}
    at = {entry: number for number, entry in enumerate(entries)}
    shared = [row for row in rows if not row.name.startswith("one:")]
    takes = np.zeros((len(entries), len(shared)))
    for number, row in enumerate(shared):
        for entry, coefficient in row.coefficients.items():
            if entry in at:
                takes[at[entry], number] = coefficient
    task = np.array([t for t, _ in entries])
    worth = np.array([tasks[t].candidates[c].worth for t, c in entries])
    gpus = np.array([float(tasks[t].candidates[c].column.gpus) for t, c in entries])
    left = np.array([row.limit for row in shared]) + 1e-9
    now = np.full(len(tasks), -1)
    for entry in (begin or {}).items():
        now[entry[0]] = at[entry]
        left -= takes[at[entry]]
    while True:
        runs = now[task] >= 0
        had = np.where(runs, now[task], 0)
        gain = worth - np.where(runs, worth[had], 0.0)
        more = gpus - np.where(runs, gpus[had], 0.0)
        fits = (takes - np.where(runs[:, None], takes[had], 0.0) <= left).all(axis=1)
        rate = np.where((gain > 1e-12) & fits, gain / np.maximum(more, 1e-3), -1.0)
        best = int(rate.argmax())
        if rate[best] <= 0.0:
            return {t: entries[number][1] for t, number in enumerate(now) if number >= 0}
        before = now[task[best]]
        left -= takes[best] - (takes[before] if before >= 0 else 0.0)
        now[task[best]] = best


def keep_running(tasks: Sequence[TaskCandidates]) -> Choice:
    """Keep every running task that can stay as it is, those that run jointly as they do."""
    held = [(t, [c for c, entry in enumerate(each.candidates) if entry.held]) for t, each in enumerate(tasks)]
    kept = {t: candidates[0] for t, candidates in held if candidates}
    jointly = {member for t in kept for member in tasks[t].members}
    return {t: c for t, c in kept.items() if t not in jointly}

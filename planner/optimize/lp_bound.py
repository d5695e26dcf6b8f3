"""The master as arrays, for thousands of candidates: what no choice can exceed at some prices.

Prices π ≥ 0 of the rows bound every choice: Σ limit · π + Σ over tasks of the most that a candidate is worth
beyond what it takes at these prices. A choice with a candidate that loses w against them is worth less by w.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from libra_plan.planner.optimize.constraints import At, Choice, Row
from libra_plan.planner.optimize.objective import TaskCandidates

__all__ = ["Floats", "Ints", "Wide", "rounded", "wide_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SAFETY = 1e-9  # relative: the sums of a bound are true to about this
_ROUNDING = 1e-10  # where values are at most about 1
_TRUE_TO = 1e-9  # of a row's largest coefficient
_TRIED = 64  # candidates of a task


@dataclass(frozen=True)
class Wide:
    """Candidates by number: `value`, shape (candidates,), and what each takes, shape (rows, candidates).

    Every row is divided by its largest coefficient. `task` tells whose each is, `first[t]` the number of
    task t's first.
    """

    task: Ints
    first: Ints
    value: Floats
    takes: csc_array
    limit: Floats

    def number(self, choice: Choice) -> Ints:
        """List the numbers of a choice."""
        return np.array([self.first[t] + c for t, c in choice.items()], dtype=np.int64)

    def choice(self, numbers: Ints) -> Choice:
        """Give the choice of some numbers."""
        return {int(t): int(n - self.first[t]) for t, n in zip(self.task[numbers], numbers, strict=True)}

    def keeps(self, numbers: Ints) -> bool:
        """Tell whether a choice keeps every row."""
        taken = np.asarray(self.takes[:, numbers].sum(axis=1)).ravel()
        return bool((taken <= self.limit + _TRUE_TO * np.maximum(1.0, np.abs(self.limit))).all())

    def reduced(self, prices: Floats) -> Floats:
        """Give what each candidate is worth beyond what it takes at these prices."""
        found: Floats = self.value - self.takes.T @ prices
        return found

    def bound(self, prices: Floats) -> float:
        """Give what no choice exceeds, proven by these prices."""
        most = np.zeros(len(self.first))
        np.maximum.at(most, self.task, self.reduced(prices))
        total = float(self.limit @ prices) + float(most.sum())
        return total + _SAFETY * abs(total) + _ROUNDING

    def part(self, numbers: Ints) -> Wide:
        """Give the same rows over some of the candidates; they are numbered anew, in their order."""
        first = np.searchsorted(numbers, self.first)
        return Wide(self.task[numbers], first, self.value[numbers], self.takes[:, numbers], self.limit)


def wide_of(tasks: Sequence[TaskCandidates], rows: Sequence[Row], values: Mapping[At, float]) -> Wide:
    """Write rows and values as arrays."""
    first = np.cumsum([0, *(len(each.candidates) for each in tasks)])
    begins = first.tolist()
    value = np.zeros(begins[-1])
    value[[begins[t] + c for t, c in values]] = list(values.values())
    units = [max((abs(k) for k in row.coefficients.values()), default=1.0) or 1.0 for row in rows]
    configurations = [begins[t] + c for row in rows for t, c in row.coefficients]
    where = np.repeat(np.arange(len(rows)), [len(row.coefficients) for row in rows])
    each = np.array([k for row in rows for k in row.coefficients.values()]) / np.asarray(units)[where]
    takes = csc_array(
        (each, (where, np.array(configurations, dtype=np.int64))), shape=(len(rows), begins[-1])
    )
    limit = np.array([row.limit for row in rows]) / np.asarray(units)
    return Wide(np.repeat(np.arange(len(tasks)), np.diff(first)), first[:-1], value, takes, limit)


def rounded(wide: Wide, fraction: Floats, loss: Floats) -> Ints:
    """Keep the LP's whole candidates and give every other task the one that loses least and fits.

    Rows that demand something (a limit below 0) are left to chance: whoever asks looks at all of them.
    """
    whole = np.flatnonzero(fraction > 1 - 1e-6)
    room = np.where(wide.limit >= 0, wide.limit + _TRUE_TO, np.inf)
    room = room - np.asarray(wide.takes[:, whole].sum(axis=1)).ravel()
    chosen = whole.tolist()
    tasks, begins = wide.task[whole], np.append(wide.first, len(wide.task))
    for t in np.setdiff1d(wide.task, tasks):
        own = np.arange(begins[t], begins[t + 1])
        own = own[np.argsort(loss[own], kind="stable")[:_TRIED]]
        takes = wide.takes[:, own].toarray()
        fits = np.flatnonzero((takes <= room[:, None]).all(axis=0))
        if len(fits):
            chosen.append(int(own[fits[0]]))
            room = room - takes[:, fits[0]]
    return np.array(sorted(chosen), dtype=np.int64)

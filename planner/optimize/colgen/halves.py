"""All ways to run one half of the tasks that lose little, and how two such halves meet.

A plan's worth is the bound of the prices, less what its configurations lose against the best of their task,
less the price of what it leaves unused. So plans within a window of the bound need configurations that
together lose no more, and leave next to nothing unused: two halves of the tasks are enumerated
apart, ways of the same spending on every limited thing merged, and pairs that fit are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.optimize.colgen.arrays import Floats, Ints

__all__ = ["Configurations", "Fits", "Half", "Pairs", "halves", "meet", "meet_some", "window_of"]

_AT_ONCE = 1_000_000  # pairs looked at together
_CHECKED, _MOST_CHECKED = 20_000, 400_000  # of those, the best are looked at row by row until some fit
_KEPT = 60
_FEW = 4  # configurations of a task
_STEPS, _FINE = 256, 16  # of losses when ways are counted, and so many at least below the answer
_SAME = 1e-9  # of a limit: spendings that differ by less are one


@dataclass(frozen=True, slots=True)
class Configurations:
    """The configurations of one task by rising loss: what each spends of every limit, and takes of every row."""

    task: int
    loss: Floats
    spent: Floats
    demand: Floats

    def within(self, window: float) -> Configurations:
        """Give the configurations that lose at most so much."""
        most = int(np.searchsorted(self.loss, window, side="right"))
        return Configurations(self.task, self.loss[:most], self.spent[:most], self.demand[:most])


@dataclass(slots=True)
class Half:
    """Ways to run some tasks, by rising loss; `steps` says how each came about."""

    loss: Floats
    spent: Floats
    steps: list[tuple[Configurations, Ints, Ints]] = field(default_factory=list)
    """Of each task added: its configurations, and of every way the way before and the configuration."""

    def __len__(self) -> int:
        return len(self.loss)

    def configurations_of(self, way: int) -> list[tuple[int, int]]:
        """List task and configuration of a way."""
        found = []
        for configurations, before, configuration in reversed(self.steps):
            found.append((configurations.task, int(configuration[way])))
            way = int(before[way])
        return found

    def demand_of(self, ways: Ints) -> Floats | float:
        """Give what ways take of every row, shape (ways, rows); 0 before there are tasks."""
        demand: Floats | float = 0.0
        for configurations, before, configuration in reversed(self.steps):
            demand = demand + configurations.demand[configuration[ways]]
            ways = before[ways]
        return demand

    def best(self, ways: int) -> Half:
        """Give so many ways of least loss."""
        return Half(self.loss[:ways], self.spent[:ways], self.steps)

    def extend(self, configurations: Configurations, window: float, limits: Floats, most: int) -> int:
        """Add a task unless more than `most` ways would have to be looked at; say how many."""
        ends = np.searchsorted(self.loss, window - configurations.loss + 1e-15, side="right")
        total = int(ends.sum())
        if total > most:
            return total
        configuration = np.repeat(np.arange(len(ends)), ends)
        before = np.arange(total) - np.repeat(np.cumsum(ends) - ends, ends)
        spent = self.spent[before] + configurations.spent[configuration]
        fits = np.flatnonzero((spent <= limits * (1 + _SAME)).all(axis=1))
        before, configuration, spent = before[fits], configuration[fits], spent[fits]
        loss = self.loss[before] + configurations.loss[configuration]
        kept = _least_of_same(loss, spent / np.maximum(limits, 1e-300))
        kept = kept[np.argsort(loss[kept], kind="stable")]
        before, configuration = before[kept], configuration[kept]
        self.loss, self.spent = loss[kept], spent[kept]
        self.steps.append((configurations, before, configuration))
        return total


def _least_of_same(loss: Floats, spent: Floats) -> Ints:
    """Keep the one of least loss among ways that spend alike (as shares of the limits)."""
    if not len(loss):
        return np.zeros(0, dtype=np.int64)
    # Alike ways have alike sums, so they are neighbours; where others come between, some stay apart.
    order = np.argsort(spent @ np.sqrt(np.arange(2, spent.shape[1] + 2) + 0.1))
    changes = (np.abs(np.diff(spent[order], axis=0)) > _SAME).any(axis=1)
    first = np.concatenate(([0], np.flatnonzero(changes) + 1))
    least = np.minimum.reduceat(loss[order], first)
    group = np.concatenate(([0], np.cumsum(changes)))
    hits = np.flatnonzero(loss[order] == least[group])
    return order[hits[np.concatenate(([True], np.diff(group[hits]) > 0))]]


def halves(
    tasks: list[Configurations],
    window: float,
    limits: Floats,
    most: int,
    late: Callable[[], bool] = lambda: False,
) -> tuple[Half, Half] | None:
    """Enumerate both halves; None when it is late, or over `most` ways would have to be looked at in all.

    Tasks of few configurations come first: they hardly make ways more, and cost as much as there are. Then those
    of many configurations, the most first: their ways merge. Each goes to the half that has fewer ways.
    """
    both = Half(np.zeros(1), np.zeros((1, len(limits)))), Half(np.zeros(1), np.zeros((1, len(limits))))
    within = [each.within(window) for each in tasks]
    for own in sorted(within, key=lambda each: _turn(len(each.loss))):
        most -= min(both, key=len).extend(own, window, limits, most)
        if most < 0 or late():
            return None
    return both


def window_of(tasks: Sequence[Configurations], most: float, ways: int) -> float:
    """Give about the largest window, up to `most`, in which each half has no more than so many ways.

    Ways are counted by their loss in steps, before any are listed; those of the same spending count apart.
    """
    window = most
    while True:
        counts = [np.eye(1, _STEPS)[0], np.eye(1, _STEPS)[0]]
        for own in sorted(tasks, key=lambda each: -len(each.loss)):
            at = np.minimum(own.loss * (_STEPS / window), _STEPS).astype(np.int64)
            smaller = int(counts[1].sum() < counts[0].sum())
            steps = np.bincount(at, minlength=_STEPS)[:_STEPS].astype(np.float64)
            counts[smaller] = np.convolve(counts[smaller], steps)[:_STEPS]
        total = np.maximum(np.cumsum(counts[0]), np.cumsum(counts[1]))
        step = int(np.searchsorted(total, ways, side="right"))
        if step >= _FINE or step == 0 or window <= _SAME * most:
            return window * max(1, step) / _STEPS
        window *= (step + 1) / _STEPS


def _turn(configurations: int) -> tuple[bool, int]:
    return configurations > _FEW, configurations if configurations <= _FEW else -configurations


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of ways by rising loss, the price of what is left unused in it.

    `least` is the loss of the best pair within the limits, whether it keeps all rows or not.
    """

    first: Ints
    second: Ints
    loss: Floats
    least: float


Fits = Callable[[Floats], NDArray[np.bool_]]
"""Tells which demands, shape (pairs, rows), keep all rows."""


def meet(both: tuple[Half, Half], limits: Floats, window: float, fits: Fits, most: int) -> Pairs | None:
    """Find the best pairs that lose at most the window; None when over `most` would be looked at.

    What a pair leaves of a limit costs as much, so it lies within the window too: the second half is
    sorted into cells of that width, and each way looks into the two it may fit in along every limit.
    """
    first, second = both
    if not len(first) or not len(second):
        return _none()
    cells = _cells(second.spent, limits, window)
    order = np.argsort(cells, kind="stable")  # within a cell ways stay sorted by loss
    cells = cells[order]
    begins = np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1])))
    number = np.diff(np.append(begins, len(cells)))
    # Of a cell only ways count whose loss the window has room for beside the first one's.
    key = 4 * np.repeat(np.arange(len(begins)), number) + np.minimum(second.loss[order] / window, 2.0)
    room = np.maximum(1.0 - first.loss / window + 1e-9, -1.0)
    need = limits - first.spent
    places: list[tuple[Ints, Ints, Ints]] = []
    looked = 0
    for corner in np.ndindex(*(2,) * len(limits)):
        at = _cells(need, limits, window, corner)
        cell = np.searchsorted(cells[begins], at)
        way = np.flatnonzero(cells[begins[np.minimum(cell, len(begins) - 1)]] == at)
        low = begins[cell[way]]
        number = np.searchsorted(key, 4 * cell[way] + room[way], side="right") - low
        looked += int(number.sum())
        if looked > most:
            return None
        places.append((way, low, number))
    found = _none()
    for way, low, number in places:
        ends = np.cumsum(number)
        begin = 0
        while begin < len(number):  # so many pairs at a time
            done = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, done + _AT_ONCE, side="right")))
            some = slice(begin, end)
            partner = order[_counting(number[some]) + np.repeat(low[some], number[some])]
            pairs = _within(both, need, np.repeat(way[some], number[some]), partner, window, fits)
            found = _best(found, pairs)
            begin = end
    return found


def meet_some(both: tuple[Half, Half], limits: Floats, window: float, fits: Fits, most: int) -> Pairs:
    """Find pairs among so few of the ways that lose least that there are not too many to look at."""
    ways = max(map(len, both))
    while ways > 1:
        ways //= 2
        found = meet((both[0].best(ways), both[1].best(ways)), limits, window, fits, most)
        if found is not None:
            return found
    return _none()


def _none() -> Pairs:
    return Pairs(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0), np.inf)


def _counting(number: Ints) -> Ints:
    """Count from 0 for each of some numbers."""
    return np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number)


def _cells(spent: Floats, limits: Floats, window: float, back: Sequence[int] | None = None) -> Ints:
    """Give the numbers of the cells that spendings lie in, or of those `back` before them.

    What is needed may be short of what is spent by what sums are true to: cells are wider by twice
    that, and what is looked for is moved up by it.
    """
    cells = np.zeros(len(spent), dtype=np.int64)
    for at, limit in enumerate(limits):
        wider = 4 * _SAME * max(1.0, limit)
        moved = spent[:, at] + (0.0 if back is None else wider / 2)
        number = np.floor(moved / (window + wider)).astype(np.int64) + (2 if back is None else 2 - back[at])
        # Numbers may wrap around: then cells share one, and what does not fit is seen not to.
        cells = cells * (int(limit / window) + 5) + number
    return cells


def _within(
    both: tuple[Half, Half], need: Floats, way: Ints, partner: Ints, window: float, fits: Fits
) -> Pairs:
    first, second = both
    unused = need[way] - second.spent[partner]
    loss = first.loss[way] + second.loss[partner] + np.maximum(unused, 0.0).sum(axis=1)
    good = np.flatnonzero((loss <= window) & (unused >= -_SAME * np.maximum(need[way], 1.0)).all(axis=1))
    if not len(good):
        return _none()
    good = good[np.argsort(loss[good], kind="stable")]
    least = float(loss[good[0]])
    for begin in range(0, min(len(good), _MOST_CHECKED), _CHECKED):
        some = good[begin : begin + _CHECKED]
        demand = np.asarray(first.demand_of(way[some]) + second.demand_of(partner[some]))
        some = some[fits(demand)]
        if len(some):
            return Pairs(way[some], partner[some], loss[some], least)
    return replace(_none(), least=least)


def _best(found: Pairs, more: Pairs) -> Pairs:
    loss = np.concatenate((found.loss, more.loss))
    best = np.argsort(loss, kind="stable")[:_KEPT]
    first, second = np.concatenate((found.first, more.first)), np.concatenate((found.second, more.second))
    return Pairs(first[best], second[best], loss[best], min(found.least, more.least))

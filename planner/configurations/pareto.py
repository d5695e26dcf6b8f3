"""Pareto fronts: candidates that no other one dominates; smaller is better."""

from __future__ import annotations

from operator import le
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Front", "insert", "undominated"]

T = TypeVar("T")
Measures = tuple[float, ...]
Front = list[tuple[Measures, T]]
"""Candidates with their measures."""

_CHUNK = 256
_MOST = 1e300  # stands for what is infinite, so that there is something larger


def covers(a: Measures, b: Measures) -> bool:
    """Return whether `a` is at least as good as `b` in every measure."""
    return all(map(le, a, b))


def insert(front: Front[T], measures: Measures, item: T) -> bool:
    """Add a candidate in place unless one on the front covers it; drop those it covers.

    Returns whether it was added. Of equals the first stays, so results are deterministic.
    """
    if any(covers(theirs, measures) for theirs, _ in front):
        return False
    front[:] = [entry for entry in front if not covers(measures, entry[0])]
    front.append((measures, item))
    return True


def undominated(measures: NDArray[np.float64]) -> NDArray[np.intp]:
    """Find the rows of `measures`, shape (candidates, measures), that no other row covers.

    Returns their numbers, sorted by measures, the first measure first; of equal rows the first
    stays. Exact: a row is only ever covered by one that comes before it in that order.
    """
    if not len(measures):
        return np.zeros(0, dtype=np.intp)
    varies = (measures != measures[0]).any(axis=0)  # measures that are equal in all rows do not matter
    measures = np.minimum(measures[:, varies], _MOST)
    order = np.lexsort((np.arange(len(measures)), *measures.T[::-1]))
    rows = measures[order]
    if rows.shape[1] <= 1:
        return order[:1]
    if rows.shape[1] == 2:
        best_before = np.concatenate(([np.inf], np.minimum.accumulate(rows[:-1, 1])))
        return order[rows[:, 1] < best_before]
    return order[_in_steps(rows) if rows.shape[1] == 3 else _in_chunks(rows)]


def _in_steps(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    """Filter sorted rows of three measures: those alike in the first one at a time.

    Of what was kept before only the second measure and the least third one up to it count.
    """
    begins = np.flatnonzero(np.concatenate(([True], rows[1:, 0] > rows[:-1, 0])))
    second, least = np.full(1, -np.inf), np.full(1, np.inf)
    numbers: list[NDArray[np.intp]] = []
    for begin, end in zip(begins, np.append(begins[1:], len(rows)), strict=True):
        own = rows[begin:end, 1:]
        before = np.concatenate(([np.inf], np.minimum.accumulate(own[:-1, 1])))
        best = np.minimum(before, least[np.searchsorted(second, own[:, 0], side="right") - 1])
        kept = np.flatnonzero(own[:, 1] < best)
        numbers.append(kept + begin)
        second, least = np.append(second, own[kept, 0]), np.append(least, own[kept, 1])
        order = np.argsort(second, kind="stable")
        second, least = second[order], np.minimum.accumulate(least[order])
    return np.concatenate(numbers)


def _in_chunks(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    """Filter sorted rows of more measures: each chunk against all kept so far, then against itself.

    Earlier rows are no worse in the first measure, so it is not looked at.
    """
    rows = rows[:, 1:]
    kept = np.empty((0, rows.shape[1]))
    numbers: list[NDArray[np.intp]] = []
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        fresh = np.flatnonzero(~_covered(kept, chunk))
        left = chunk[fresh]
        among = np.tril(_covering(left, left).T, -1).any(axis=1)  # by an earlier row of the chunk
        chosen = fresh[~among]
        kept = np.concatenate((kept, chunk[chosen]))
        numbers.append(chosen + start)
    return np.concatenate(numbers)


def _covering(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for every pair whether a[i] covers b[j], shape (len(a), len(b))."""
    result = a[:, 0, None] <= b[None, :, 0]
    for configuration in range(1, a.shape[1]):
        result &= a[:, configuration, None] <= b[None, :, configuration]
    return result


def _covered(kept: NDArray[np.float64], chunk: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(_covering(kept, chunk).any(axis=0))

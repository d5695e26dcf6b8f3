"""Pareto fronts: what no other candidate beats in every measure at once; smaller is better."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Front", "insert", "undominated"]

T = TypeVar("T")
Measures = tuple[float, ...]
Front = list[tuple[Measures, T]]
"""Candidates with their measures."""

_CHUNK = 256


def covers(a: Measures, b: Measures) -> bool:
    """Tell whether `a` is at least as good as `b` in every measure."""
    return all(x <= y for x, y in zip(a, b, strict=True))


def insert(front: Front[T], measures: Measures, item: T) -> bool:
    """Add a candidate in place unless one on the front covers it; drop those it covers.

    Returns whether it was added. Of equals the first stays, so results do not depend on luck.
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
    order = np.lexsort((np.arange(len(measures)), *measures.T[::-1]))
    rows = measures[order]
    if len(rows) == 0 or rows.shape[1] == 1:
        return order[:1]
    if rows.shape[1] == 2:
        best_before = np.concatenate(([np.inf], np.minimum.accumulate(rows[:-1, 1])))
        return order[rows[:, 1] < best_before]
    return order[_in_chunks(rows)]


def _in_chunks(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    """Filter sorted rows: each chunk against all kept so far, then against itself."""
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
    """Tell for every pair whether a[i] covers b[j], shape (len(a), len(b))."""
    result = np.ones((len(a), len(b)), dtype=bool)
    for column in range(a.shape[1]):
        result &= a[:, column, None] <= b[None, :, column]
    return result


def _covered(kept: NDArray[np.float64], chunk: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(_covering(kept, chunk).any(axis=0))

"""Pareto fronts: candidates that no other one dominates; smaller is better."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["combinations", "pareto_front"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = NDArray[np.intp]

_CHUNK = 256
_BALANCED = 24
_MOST = 1e300  # stands for what is infinite, so that there is something larger


def pareto_front(measures: Floats) -> Rows:
    """Find the rows of `measures`, shape (candidates, measures), that no other row covers.

    Returns their numbers, sorted by measures, the first measure first; of equal rows the first
    stays. Exact: a row is only ever covered by one that comes before it in that order.
    """
    if not len(measures):
        return np.zeros(0, dtype=np.intp)
    varies = (measures != measures[0]).any(axis=0)  # measures that are equal in all rows do not matter
    measures = np.minimum(measures[:, varies], _MOST)
    order = np.lexsort(measures.T[::-1]) if varies.any() else np.arange(1)
    rows = measures[order]
    if rows.shape[1] <= 1:
        return order[:1]
    if rows.shape[1] == 2:
        best_before = np.concatenate(([np.inf], np.minimum.accumulate(rows[:-1, 1])))
        return order[rows[:, 1] < best_before]
    if len(rows) > _CHUNK:
        fresh = np.concatenate(([True], (rows[1:, :-1] != rows[:-1, :-1]).any(axis=1)))
        order, rows = order[fresh], rows[fresh]  # of those alike in all but the last measure, the first
    return order[_in_chunks(rows)]


def _in_chunks(rows: Floats) -> Rows:
    """Filter sorted rows: each chunk against all kept so far, then against itself.

    Earlier rows are no worse in the first measure, so it is not looked at.
    """
    rows = rows[:, 1:]
    waiting = np.arange(len(rows))
    if len(rows) > _CHUNK:
        waiting = waiting[~_beaten_by_balanced(rows)]
    kept = np.zeros(0, dtype=np.intp)
    for start in range(0, len(waiting), _CHUNK):
        chunk = waiting[start : start + _CHUNK]
        if len(kept):
            chunk = chunk[~_covering(rows[kept], rows[chunk]).any(axis=0)]
        among = np.triu(_covering(rows[chunk], rows[chunk]), 1).any(axis=0)  # by an earlier row of the chunk
        kept = np.concatenate((kept, chunk[~among]))
    return kept


def _beaten_by_balanced(rows: Floats) -> NDArray[np.bool_]:
    """Whether an earlier row that is good in all measures covers a row: most fall to a few of these."""
    spread = np.ptp(rows, axis=0)
    score = (rows / np.where(spread > 0, spread, 1.0)).sum(axis=1)
    balanced = np.sort(np.argpartition(score, _BALANCED)[:_BALANCED])
    earlier = balanced[:, None] < np.arange(len(rows))[None, :]
    return np.asarray((_covering(rows[balanced], rows) & earlier).any(axis=0))


def _covering(a: Floats, b: Floats) -> NDArray[np.bool_]:
    """Whether a[i] is at least as good as b[j] in every measure, for every pair."""
    result = np.ones((len(a), len(b)), dtype=bool)
    columns = zip(np.ascontiguousarray(a.T), np.ascontiguousarray(b.T), strict=True)  # much faster by column
    for mine, theirs in columns:
        result &= mine[:, None] <= theirs[None, :]
    return result


def combinations(members: Sequence[tuple[Ints, Floats]], *, same_needs: bool = False) -> tuple[Ints, Ints]:
    """Combine candidates, one of each member, on as many blocks as the one that needs most.

    A member's candidates are the blocks that each needs, and their measures. A candidate has no place on
    so many blocks when another one that needs no more than these covers it. With `same_needs` all
    candidates of a combination need the same number. Returns the candidates' numbers, shape
    (combinations, members), and the blocks, fewest first.
    """
    picks, needs, until = np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64), np.full(1, np.inf)
    for own, measures in members:
        order = np.argsort(own, kind="stable")
        if len(members) > 1 or same_needs:
            replaced = _replaced_at(own[order], measures[order], same_needs)
        else:
            replaced = np.full(len(own), np.inf)
        together = np.maximum(needs[:, None], own[order][None, :])
        i, j = np.nonzero(together < np.minimum(until[:, None], replaced[None, :]))
        picks = np.concatenate((picks[i], order[j][:, None]), axis=1)
        needs, until = together[i, j], np.minimum(until[i], replaced[j])
    order = np.argsort(needs, kind="stable")
    return picks[order], needs[order]


def _replaced_at(needs: Ints, measures: Floats, same_needs: bool) -> Floats:
    """Return for each candidate, sorted by need, the blocks from which on another one covers it."""
    if not len(needs):
        return np.zeros(0)
    measures = measures[:, (measures != measures[0]).any(axis=0)]
    covering = _covering(measures, measures)
    if same_needs:
        covering &= needs[:, None] == needs[None, :]
    earlier = np.tri(len(needs), k=-1, dtype=bool).T
    beaten = covering & (earlier | ~covering.T)
    at: Floats = np.where(beaten, needs[:, None].astype(np.float64), np.inf).min(axis=0)
    return np.minimum(at, needs + 1.0) if same_needs else at

"""A Pareto front: what no other candidate beats in every measure at once."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["Front", "covers", "insert"]

T = TypeVar("T")
Measures = tuple[float, ...]
Front = list[tuple[Measures, T]]
"""Candidates with their measures, smaller being better in each."""


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

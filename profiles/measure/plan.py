"""Which points to measure, and in which order: the most informative first."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from libra_plan.errors import ProfileError, Where

__all__ = ["PHASES", "WORKS", "PlannedPoint", "default_plan", "informative_order", "read_points_plan"]

# What can be measured, and the profile phase it yields. `decode-gqa` is decoding without a mask (every
# position of a full context is attended), which lets SDPA use its grouped-query flash kernel.
# `train-accumulated` steps over two micro-batches: gradients stand while activations peak.
PHASES = {
    "decode": "decode",
    "decode-gqa": "decode",
    "score": "score",
    "train": "train",
    "train-accumulated": "train",
}
WORKS = tuple(PHASES)


@dataclass(frozen=True, order=True)
class PlannedPoint:
    """One shape to measure: `batch_sequences` sequences at `seq_len_tokens` tokens (decode: context)."""

    batch_sequences: int
    seq_len_tokens: int

    def __str__(self) -> str:
        return f"{self.batch_sequences}x{self.seq_len_tokens}"

    @property
    def tokens(self) -> int:
        """The tokens the point holds."""
        return self.batch_sequences * self.seq_len_tokens

    def covers(self, other: PlannedPoint) -> bool:
        """Whether this point is at least as large as the other in both directions."""
        return self.batch_sequences >= other.batch_sequences and self.seq_len_tokens >= other.seq_len_tokens


def default_plan(work: str) -> tuple[PlannedPoint, ...]:
    """Return the grid for a kind of work: powers of two, bounded by what one GPU can hold or do in time."""
    decodes = PHASES[work] == "decode"
    batches, most_tokens = (range(9), math.inf) if decodes else (range(7), 65536)
    grid = (PlannedPoint(2**batch, 2**length) for batch in batches for length in range(8, 16))
    return tuple(point for point in grid if point.tokens <= most_tokens)


def informative_order(points: Iterable[PlannedPoint]) -> tuple[PlannedPoint, ...]:
    """Order points so that every beginning of the list spreads over the whole range.

    Farthest-first traversal (Gonzalez 1985, the 2-approximation of the k-centre problem) in
    log2(batch), log2(tokens), from the smallest point: each next point is the one farthest from all
    before it. Ties go to the fewest tokens, so the cheap one comes first.
    """
    left = sorted(set(points), key=lambda point: (point.tokens, point))
    if not left:
        return ()
    ordered = [left.pop(0)]
    distance = {point: _distance(point, ordered[0]) for point in left}
    while left:
        chosen = max(left, key=lambda point: (distance[point], -point.tokens))
        left.remove(chosen)
        ordered.append(chosen)
        for point in left:
            distance[point] = min(distance[point], _distance(point, chosen))
    return tuple(ordered)


def _distance(a: PlannedPoint, b: PlannedPoint) -> float:
    return math.hypot(
        math.log2(a.batch_sequences / b.batch_sequences), math.log2(a.seq_len_tokens / b.seq_len_tokens)
    )


def read_points_plan(path: Path, works: Sequence[str]) -> dict[str, tuple[PlannedPoint, ...]]:
    """Read a CSV of `work,batch_sequences,seq_len_tokens` rows; works without a row are absent."""
    plan: dict[str, list[PlannedPoint]] = {}
    if not path.is_file():
        raise ProfileError("no such file", way_out="check the path", where=Where(str(path)))
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        for row in reader:
            where = Where(str(path), reader.line_num)
            if row.get("work") not in PHASES:
                raise ProfileError(
                    "unknown work in the plan", got=row.get("work"), allowed=", ".join(WORKS), where=where
                )
            try:
                point = PlannedPoint(int(row["batch_sequences"]), int(row["seq_len_tokens"]))
            except (KeyError, TypeError, ValueError) as error:
                raise ProfileError("not a point", got=error, where=where) from error
            if min(point.batch_sequences, point.seq_len_tokens) < 1:
                raise ProfileError("sizes start at 1", got=point, where=where)
            plan.setdefault(row["work"], []).append(point)
    return {work: tuple(plan[work]) for work in works if work in plan}

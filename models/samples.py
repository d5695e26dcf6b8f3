"""From the rows of a profile to samples a form can be fitted to; what ran out of memory stays known."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from libra_plan.models.curve import Sample
from libra_plan.models.forms import Place
from libra_plan.models.parallelism import Layout
from libra_plan.profiles.schema import Phase, Point, ProfileFile

__all__ = [
    "LARGEST_SIZE",
    "LEAST_SIZE",
    "LayoutRows",
    "Row",
    "is_size",
    "memory_samples",
    "place_of",
    "rows_by_layout",
    "time_samples",
]

LEAST_SIZE, LARGEST_SIZE = 1e-6, 1e12
"""Batches and lengths that can be meant; far beyond them products of sizes leave the floating-point range."""


@dataclass(frozen=True, slots=True)
class Row:
    """A point with its name and its place (batch, length, output)."""

    name: str
    place: Place
    point: Point


@dataclass(frozen=True, slots=True)
class LayoutRows:
    """The rows of one layout: `base_dp` is the data-parallel size most of them have."""

    layout: Layout
    base_dp: int
    base: tuple[Row, ...]
    others: tuple[Row, ...]


def place_of(
    phase: Phase,
    batch: float,
    seq_len: float | None,
    prompt: float | None,
    output: float | None,
) -> Place | None:
    """Give the place of a point or a query: serve uses prompt and output, the others one length."""
    if phase == "serve":
        return None if prompt is None or output is None else (float(batch), float(prompt), float(output))
    return None if seq_len is None else (float(batch), float(seq_len), 1.0)


def is_size(place: Place) -> bool:
    """Tell whether a step may have this batch and these lengths; NaN is none."""
    return all(LEAST_SIZE <= part <= LARGEST_SIZE for part in place)


def rows_by_layout(
    file: ProfileFile, points: Sequence[Point], extra: Sequence[tuple[ProfileFile, Sequence[Point]]] = ()
) -> tuple[LayoutRows, ...]:
    """Group the points that have a place by layout; `extra` files add theirs under their own names.

    Only a training step couples data-parallel ranks; elsewhere points of any dp are one sample.
    """
    groups: dict[Layout, list[Row]] = {}
    for source, own in ((file, points), *extra):
        for line, point in enumerate(own, start=2):  # line 1 of the file names the columns
            place = place_of(
                file.phase,
                point.batch_sequences,
                point.seq_len_tokens,
                point.prompt_tokens,
                point.output_tokens,
            )
            if place is not None:
                layout = Layout(point.tp, point.pp, point.cp, point.ep)
                row = Row(f"{source.id}/{source.points}:{line}", place, point)
                groups.setdefault(layout, []).append(row)
    return tuple(_split(file.phase, layout, rows) for layout, rows in sorted(groups.items()))


def _split(phase: Phase, layout: Layout, rows: list[Row]) -> LayoutRows:
    if phase != "train":
        return LayoutRows(layout, 1, tuple(rows), ())
    sizes = [row.point.dp for row in rows]
    base_dp = max(sorted(set(sizes)), key=sizes.count)
    base = tuple(row for row in rows if row.point.dp == base_dp)
    return LayoutRows(layout, base_dp, base, tuple(row for row in rows if row.point.dp != base_dp))


def time_samples(rows: Sequence[Row]) -> list[Sample]:
    """Make one sample of each place's times, seconds: the median of its rows."""
    merged: dict[Place, list[tuple[float, float, float, str]]] = {}
    for row in rows:
        value = row.point.time_s
        if row.point.status == "ok" and value is not None:
            low = row.point.time_low_s if row.point.time_low_s is not None else value
            high = row.point.time_high_s if row.point.time_high_s is not None else value
            merged.setdefault(row.place, []).append((value, min(low, value), max(high, value), row.name))
    return [_merge(place, values) for place, values in merged.items()]


def memory_samples(rows: Sequence[Row]) -> tuple[list[Sample], str | None]:
    """Make one sample of each place's peak memory, MiB, and say which column it is.

    Reserved is what other processes cannot have; without it what the device showed in use, and
    last what was allocated. One column for all rows: they differ by up to 80 %.
    """
    usable = [row for row in rows if row.point.status == "ok"]
    for column in ("peak_reserved_mib", "device_used_mib", "peak_allocated_mib"):
        merged: dict[Place, list[tuple[float, float, float, str]]] = {}
        for row in usable:
            value = getattr(row.point, column)
            if value is not None:
                merged.setdefault(row.place, []).append((value, value, value, row.name))
        if merged:
            return [_merge(place, values) for place, values in merged.items()], column
    return [], None


def _merge(place: Place, values: list[tuple[float, float, float, str]]) -> Sample:
    value = statistics.median(entry[0] for entry in values)
    low = min(entry[1] for entry in values)
    high = max(entry[2] for entry in values)
    return Sample(*place, value, low, high, tuple(entry[3] for entry in values))

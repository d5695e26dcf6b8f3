"""Turn the rows of a profile into samples, and fit the curves of each layout to them.

`TIME` and `MEMORY` say which form, correction and groups each phase is fitted with. Lengths (octaves) and
noises of the corrections were chosen by leave-one-group-out error over the shipped H200 profiles and public
serving data; `benchmarks/cost_models.py` prints what they reach.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from libra_plan.models.costs.base import DecodeCoefficients, Place, places_of
from libra_plan.models.costs.decode import fit_affine_decode, fit_decode, fit_serve
from libra_plan.models.costs.memory import fit_cache_memory, fit_chunk_memory
from libra_plan.models.costs.passes import fit_soft_floor
from libra_plan.models.curves.curve import (
    LEAST_POINTS,
    Curve,
    CurveSample,
    Grouping,
    Recipe,
    fit_curve,
)
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query
from libra_plan.profiles.counting import counted
from libra_plan.profiles.schema import Phase, Point, ProfileFile

__all__ = [
    "MEMORY",
    "TIME",
    "LayoutFit",
    "LayoutRows",
    "MeasuredRow",
    "RanksSample",
    "fit_layout",
    "memory_samples",
    "place_of",
    "rows_by_layout",
    "time_samples",
    "why_no_curve",
]


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A point with its name and its place (batch, length, output)."""

    name: str
    place: Place
    point: Point


@dataclass(frozen=True, slots=True)
class LayoutRows:
    """The rows of one layout: `base_dp` is the data-parallel size most of them have."""

    layout: Layout
    base_dp: int
    base: tuple[MeasuredRow, ...]
    others: tuple[MeasuredRow, ...]


def place_of(phase: Phase, sizes: Point | Query) -> Place | None:
    """Return the place of a point or a query: serve uses prompt and output, the others one length."""
    batch, prompt, output = float(sizes.batch_sequences), sizes.prompt_tokens, sizes.output_tokens
    if phase == "serve":
        return None if prompt is None or output is None else (batch, float(prompt), float(output))
    return None if sizes.seq_len_tokens is None else (batch, float(sizes.seq_len_tokens), 1.0)


def rows_by_layout(
    file: ProfileFile, points: Sequence[Point], extra: Sequence[tuple[ProfileFile, Sequence[Point]]] = ()
) -> tuple[LayoutRows, ...]:
    """Group the points that have a place by layout; `extra` files add theirs under their own names.

    Only a training step couples data-parallel ranks; elsewhere points of any dp are one sample.
    """
    groups: dict[Layout, list[MeasuredRow]] = {}
    for source, own in ((file, points), *extra):
        for line, point in enumerate(own, start=2):  # line 1 of the file names the columns
            place = place_of(file.phase, point)
            if place is not None:
                row = MeasuredRow(f"{source.id}/{source.points}:{line}", place, point)
                groups.setdefault(Layout.of(point), []).append(row)
    return tuple(_split(file.phase, layout, rows) for layout, rows in sorted(groups.items()))


def _split(phase: Phase, layout: Layout, rows: list[MeasuredRow]) -> LayoutRows:
    if phase != "train":
        return LayoutRows(layout, 1, tuple(rows), ())
    sizes = [row.point.dp for row in rows]
    base_dp = max(sorted(set(sizes)), key=sizes.count)
    base = tuple(row for row in rows if row.point.dp == base_dp)
    return LayoutRows(layout, base_dp, base, tuple(row for row in rows if row.point.dp != base_dp))


def time_samples(rows: Sequence[MeasuredRow]) -> list[CurveSample]:
    """Return one sample of times (seconds) for each place: the median of its rows."""
    merged: dict[Place, list[tuple[float, float, float, str]]] = {}
    for row in rows:
        value = row.point.time_s
        if row.point.status == "ok" and value is not None:
            low = row.point.time_low_s if row.point.time_low_s is not None else value
            high = row.point.time_high_s if row.point.time_high_s is not None else value
            merged.setdefault(row.place, []).append((value, min(low, value), max(high, value), row.name))
    return [_merge(place, values) for place, values in merged.items()]


def memory_samples(rows: Sequence[MeasuredRow]) -> tuple[list[CurveSample], str | None]:
    """Return one sample of peak memory (MiB) for each place, and the column it is from.

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


def _merge(place: Place, values: list[tuple[float, float, float, str]]) -> CurveSample:
    value = statistics.median(entry[0] for entry in values)
    low = min(entry[1] for entry in values)
    high = max(entry[2] for entry in values)
    return CurveSample(*place, value, low, high, tuple(entry[3] for entry in values))


_BOTH = (Grouping.BATCH, Grouping.LENGTH)
# One batch of a score or train profile holds most of its lengths: leaving it out leaves no sweep.
_LENGTH = (Grouping.LENGTH,)

TIME: dict[Phase, Recipe] = {
    "decode": Recipe(fit_decode, length=10.0, noise=0.02, groupings=_BOTH),
    "serve": Recipe(fit_serve, length=4.0, noise=0.3, groupings=(Grouping.PLACE,)),
    "score": Recipe(fit_soft_floor, length=4.0, noise=0.02, groupings=_LENGTH),
    "train": Recipe(fit_soft_floor, length=10.0, noise=0.1, groupings=_LENGTH),
}
MEMORY: dict[Phase, Recipe] = {
    "decode": Recipe(fit_cache_memory, length=10.0, noise=0.1, groupings=_BOTH, one_sided=True),
    "serve": Recipe(fit_cache_memory, length=10.0, noise=0.1, groupings=(Grouping.PLACE,), one_sided=True),
    "score": Recipe(fit_chunk_memory, length=10.0, noise=0.1, groupings=_LENGTH, one_sided=True),
    "train": Recipe(fit_chunk_memory, length=10.0, noise=0.1, groupings=_LENGTH, one_sided=True),
}


class RanksSample(msgspec.Struct, frozen=True):
    """A measured training step at another data-parallel size than the curve's."""

    dp: int
    sample: CurveSample


class LayoutFit(msgspec.Struct, frozen=True):
    """Curves of one layout; a curve is None when nothing of that kind was measured.

    `samples` counts the places with a time, enough for a curve or not. `coefficients` are those of
    the affine decode step, where the phase has one.
    """

    layout: Layout
    base_dp: int
    time: Curve | None
    memory: Curve | None
    memory_column: str | None
    samples: int
    failed_at: tuple[Place, ...]
    other_ranks: tuple[RanksSample, ...]
    coefficients: DecodeCoefficients | None
    outside_allocator_mib: float | None


def why_no_curve(fit: LayoutFit, quantity: str) -> str | None:
    """Return why `time` or `memory` of a layout has no curve; None when it has one."""
    if quantity == "time":
        if fit.time is not None:
            return None
        places = counted(fit.samples, "place") if fit.samples else "no place"
        return f"{places} with a time, a fit needs {LEAST_POINTS}"
    if fit.memory is not None:
        return None
    if fit.memory_column is None:
        return "no memory measured"
    return f"fewer than {LEAST_POINTS} places with {fit.memory_column}"


def fit_layout(phase: Phase, rows: LayoutRows) -> LayoutFit:
    """Fit time and memory of one layout."""
    times = time_samples(rows.base)
    memory, column = memory_samples(rows.base)
    time = fit_curve(TIME[phase], times) if len(times) >= LEAST_POINTS else None
    return LayoutFit(
        layout=rows.layout,
        base_dp=rows.base_dp,
        time=time,
        memory=fit_curve(MEMORY[phase], memory) if len(memory) >= LEAST_POINTS else None,
        memory_column=column,
        samples=len(times),
        failed_at=tuple(row.place for row in rows.base if row.point.status == "oom"),
        other_ranks=_other_ranks(rows.others),
        coefficients=None if time is None else _coefficients(phase, time),
        outside_allocator_mib=_outside_allocator(rows.base),
    )


def _coefficients(phase: Phase, curve: Curve) -> DecodeCoefficients | None:
    """Fit the affine decode step; a serving table has it in its form."""
    if phase == "serve":
        batches = [sample.batch for sample in curve.samples]
        return curve.form.affine(min(batches), max(batches), math.exp(curve.inside_high) - 1)
    if phase != "decode":
        return None
    at = places_of([sample.place for sample in curve.samples])
    measured = np.array([sample.value for sample in curve.samples])
    form = fit_affine_decode(at, measured, np.array([sample.weight for sample in curve.samples]))
    error = float(np.quantile(np.abs(form.predict(at) / measured - 1.0), 0.9))
    return form.affine(1.0, 1.0, error)


def _other_ranks(rows: tuple[MeasuredRow, ...]) -> tuple[RanksSample, ...]:
    sizes = dict.fromkeys(row.point.dp for row in rows)
    return tuple(
        RanksSample(dp, sample)
        for dp in sizes
        for sample in time_samples([row for row in rows if row.point.dp == dp])
    )


def _outside_allocator(rows: tuple[MeasuredRow, ...]) -> float | None:
    extra = [
        row.point.device_used_mib - row.point.peak_reserved_mib
        for row in rows
        if row.point.device_used_mib is not None and row.point.peak_reserved_mib is not None
    ]
    return max(0.0, *extra) if extra else None

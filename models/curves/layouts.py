"""From the rows of a profile to samples a form can be fitted to; what ran out of memory stays known.

Which form, correction and groups each phase is fitted with.

Lengths (octaves) and noises of the corrections were chosen by leave-one-group-out error over the
shipped H200 profiles and public serving data; `benchmarks/cost_models.py` prints what they reach.

The fitted curves of one layout: built from its rows, and where they may be asked.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from libra_plan.models.costs.base import Place, places_of
from libra_plan.models.costs.decode import DecodeForm, fit_affine_decode, fit_decode, fit_serve
from libra_plan.models.costs.memory import fit_cache_memory, fit_chunk_memory
from libra_plan.models.costs.passes import fit_score, fit_train
from libra_plan.models.curves.curve import (
    LEAST_POINTS,
    Curve,
    CurveSample,
    Grouping,
    Recipe,
    fit_curve,
    log_place,
)
from libra_plan.models.parallelism import Layout
from libra_plan.profiles.counting import counted
from libra_plan.profiles.schema import Phase, Point, ProfileFile

__all__ = [
    "LARGEST_SIZE",
    "LEAST_SIZE",
    "MEMORY",
    "TIME",
    "LayoutFit",
    "LayoutRows",
    "MeasuredRow",
    "PlaceReach",
    "RanksSample",
    "fit_layout",
    "is_size",
    "memory_samples",
    "place_of",
    "reach",
    "rows_by_layout",
    "time_samples",
    "why_no_curve",
]

LEAST_SIZE, LARGEST_SIZE = 1e-6, 1e12
"""Batches and lengths that can be meant; far beyond them products of sizes leave the floating-point range."""


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
    groups: dict[Layout, list[MeasuredRow]] = {}
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
                row = MeasuredRow(f"{source.id}/{source.points}:{line}", place, point)
                groups.setdefault(layout, []).append(row)
    return tuple(_split(file.phase, layout, rows) for layout, rows in sorted(groups.items()))


def _split(phase: Phase, layout: Layout, rows: list[MeasuredRow]) -> LayoutRows:
    if phase != "train":
        return LayoutRows(layout, 1, tuple(rows), ())
    sizes = [row.point.dp for row in rows]
    base_dp = max(sorted(set(sizes)), key=sizes.count)
    base = tuple(row for row in rows if row.point.dp == base_dp)
    return LayoutRows(layout, base_dp, base, tuple(row for row in rows if row.point.dp != base_dp))


def time_samples(rows: Sequence[MeasuredRow]) -> list[CurveSample]:
    """Make one sample of each place's times, seconds: the median of its rows."""
    merged: dict[Place, list[tuple[float, float, float, str]]] = {}
    for row in rows:
        value = row.point.time_s
        if row.point.status == "ok" and value is not None:
            low = row.point.time_low_s if row.point.time_low_s is not None else value
            high = row.point.time_high_s if row.point.time_high_s is not None else value
            merged.setdefault(row.place, []).append((value, min(low, value), max(high, value), row.name))
    return [_merge(place, values) for place, values in merged.items()]


def memory_samples(rows: Sequence[MeasuredRow]) -> tuple[list[CurveSample], str | None]:
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
    "score": Recipe(fit_score, length=4.0, noise=0.02, groupings=_LENGTH),
    "train": Recipe(fit_train, length=10.0, noise=0.1, groupings=_LENGTH),
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

    `samples` counts the places with a time, enough for a curve or not. `affine` is the decode
    step without √B and `affine_error` its relative error at the 90th percentile.
    """

    layout: Layout
    base_dp: int
    time: Curve | None
    memory: Curve | None
    memory_column: str | None
    samples: int
    failed_at: tuple[Place, ...]
    other_ranks: tuple[RanksSample, ...]
    affine: DecodeForm | None
    affine_error: float
    outside_allocator_mib: float | None


@dataclass(frozen=True, slots=True)
class PlaceReach:
    """How far a place lies from the measured ones: octaves (None: no single axis leads back)."""

    octaves: float | None
    total_octaves: float
    held_at: Place


def why_no_curve(fit: LayoutFit, quantity: str) -> str | None:
    """Say why `time` or `memory` of a layout has no curve; None when it has one."""
    if quantity == "time":
        if fit.time is not None:
            return None
        return f"{_places(fit.samples)} with a time, a fit needs {LEAST_POINTS}"
    if fit.memory is not None:
        return None
    if fit.memory_column is None:
        return "no memory measured"
    return f"fewer than {LEAST_POINTS} places with {fit.memory_column}"


def _places(number: int) -> str:
    return counted(number, "place") if number else "no place"


def fit_layout(phase: Phase, rows: LayoutRows) -> LayoutFit:
    """Fit time and memory of one layout."""
    times = time_samples(rows.base)
    memory, column = memory_samples(rows.base)
    affine, error = _affine(phase, times)
    return LayoutFit(
        layout=rows.layout,
        base_dp=rows.base_dp,
        time=fit_curve(TIME[phase], times) if len(times) >= LEAST_POINTS else None,
        memory=fit_curve(MEMORY[phase], memory) if len(memory) >= LEAST_POINTS else None,
        memory_column=column,
        samples=len(times),
        failed_at=tuple(row.place for row in rows.base if row.point.status == "oom"),
        other_ranks=_other_ranks(rows.others),
        affine=affine,
        affine_error=error,
        outside_allocator_mib=_outside_allocator(rows.base),
    )


def _affine(phase: Phase, times: list[CurveSample]) -> tuple[DecodeForm | None, float]:
    if phase != "decode" or len(times) < LEAST_POINTS:
        return None, 0.0
    at = places_of([sample.place for sample in times])
    measured = np.array([sample.value for sample in times])
    form = fit_affine_decode(at, measured, np.array([sample.weight for sample in times]))
    return form, float(np.quantile(np.abs(form.predict(at) / measured - 1.0), 0.9))


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


def reach(curve: Curve, place: Place) -> PlaceReach:
    """Measure how far a place lies outside the hull, and where the correction is held."""
    log = log_place(place)
    step = curve.domain.step_back(log)
    clamped = step.place if step is not None and step.octaves == 0 else curve.domain.clamp(log)
    least, most = curve.outputs
    output = min(max(place[2], least), most)
    output_octaves = abs(math.log2(place[2] / output))
    total = abs(clamped[0] - log[0]) + abs(clamped[1] - log[1]) + output_octaves
    if step is None or (step.octaves > 0 and output_octaves > 0):
        return PlaceReach(None, total, (2.0 ** clamped[0], 2.0 ** clamped[1], output))
    held = (2.0 ** step.place[0], 2.0 ** step.place[1], output)
    return PlaceReach(step.octaves + output_octaves, total, held)

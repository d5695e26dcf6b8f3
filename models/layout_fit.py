"""The fitted curves of one layout: built from its rows, and where they may be asked."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
import numpy as np

from libra_plan.models.curve import LEAST_POINTS, Curve, Sample, fit_curve, log_place
from libra_plan.models.decode import DecodeForm, fit_affine_decode
from libra_plan.models.forms import Place, places_of
from libra_plan.models.parallelism import Layout
from libra_plan.models.recipes import MEMORY, TIME
from libra_plan.models.samples import LayoutRows, Row, memory_samples, time_samples
from libra_plan.profiles.counting import counted
from libra_plan.profiles.schema import Phase

__all__ = ["LayoutFit", "RanksSample", "Reach", "fit_layout", "reach", "why_no_curve"]


class RanksSample(msgspec.Struct, frozen=True):
    """A measured training step at another data-parallel size than the curve's."""

    dp: int
    sample: Sample


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
class Reach:
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


def _affine(phase: Phase, times: list[Sample]) -> tuple[DecodeForm | None, float]:
    if phase != "decode" or len(times) < LEAST_POINTS:
        return None, 0.0
    at = places_of([sample.place for sample in times])
    measured = np.array([sample.value for sample in times])
    form = fit_affine_decode(at, measured, np.array([sample.weight for sample in times]))
    return form, float(np.quantile(np.abs(form.predict(at) / measured - 1.0), 0.9))


def _other_ranks(rows: tuple[Row, ...]) -> tuple[RanksSample, ...]:
    sizes = dict.fromkeys(row.point.dp for row in rows)
    return tuple(
        RanksSample(dp, sample)
        for dp in sizes
        for sample in time_samples([row for row in rows if row.point.dp == dp])
    )


def _outside_allocator(rows: tuple[Row, ...]) -> float | None:
    extra = [
        row.point.device_used_mib - row.point.peak_reserved_mib
        for row in rows
        if row.point.device_used_mib is not None and row.point.peak_reserved_mib is not None
    ]
    return max(0.0, *extra) if extra else None


def reach(curve: Curve, place: Place) -> Reach:
    """Measure how far a place lies outside the hull, and where the correction is held."""
    log = log_place(place)
    step = curve.domain.step_back(log)
    clamped = step.place if step is not None and step.octaves == 0 else curve.domain.clamp(log)
    least, most = curve.outputs
    output = min(max(place[2], least), most)
    output_octaves = abs(math.log2(place[2] / output))
    total = abs(clamped[0] - log[0]) + abs(clamped[1] - log[1]) + output_octaves
    if step is None or (step.octaves > 0 and output_octaves > 0):
        return Reach(None, total, (2.0 ** clamped[0], 2.0 ** clamped[1], output))
    held = (2.0 ** step.place[0], 2.0 ** step.place[1], output)
    return Reach(step.octaves + output_octaves, total, held)

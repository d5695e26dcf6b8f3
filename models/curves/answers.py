"""Answer from one curve: measured, interpolated, extrapolated, assumed, or refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from libra_plan.models import query as refusals
from libra_plan.models.costs.base import Place, places_of
from libra_plan.models.curves.curve import MARGIN, REPEAT_NOISE, RUN_NOISE, Curve, CurveSample
from libra_plan.models.curves.layouts import PlaceReach, reach
from libra_plan.models.memory.bound import MemoryBound
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.query import Query

__all__ = ["ONE_OCTAVE", "Asked", "measured_time", "memory_from", "nearest_rows", "time_from"]

_ROWS = 4
ONE_OCTAVE = 1.0 + 1e-9


class Asked:
    """A question with the words to refuse it: profile name, query, its place, priors allowed or not."""

    __slots__ = ("allow_prior", "name", "place", "query")

    def __init__(self, name: str, query: Query, place: Place, allow_prior: bool) -> None:
        self.name = name
        self.query = query
        self.place = place
        self.allow_prior = allow_prior


def measured(sample: CurveSample, unit: str, noise: float = REPEAT_NOISE) -> Estimate:
    """Return a measured value exactly, between its lowest and highest repeat (at least ± `noise`)."""
    value = sample.value
    low = min(sample.low, value * (1 - noise))
    high = max(sample.high, value * (1 + noise))
    return Estimate(value, low, high, unit, Origin.MEASURED, sample.rows)


def measured_time(curve: Curve, sample: CurveSample) -> Estimate:
    """Return measured seconds exactly, between what other runs and hosts may take."""
    own = measured(sample, "s", RUN_NOISE)
    (below,), (above,) = curve.host_bounds(places_of([sample.place]))
    low = min(own.low, own.value * math.exp(-below))
    return replace(own, low=low, high=max(own.high, own.value * math.exp(above)))


def time_from(curve: Curve, asked: Asked) -> Estimate:
    """Answer a time, seconds."""
    sample = curve.measured_at.get(asked.place)
    if sample is not None:
        return measured_time(curve, sample)
    away = reach(curve, asked.place)
    value = curve.value_at(asked.place, away.held_at)
    origin, low, high = _bounds(curve, away, asked)
    (below,), (above,) = curve.host_bounds(places_of([asked.place]))
    low, high = max(low, float(below)), max(high, float(above))
    rows = nearest_rows(curve, away.held_at)
    return Estimate(value, value * math.exp(-low), value * math.exp(high), "s", origin, rows)


def memory_from(curve: Curve, bound: MemoryBound, asked: Asked) -> Estimate:
    """Answer a memory, MiB; never less than the smallest measured peak, outside than any smaller run."""
    upper = float(bound.at([asked.place])[0])
    sample = curve.measured_at.get(asked.place)
    if sample is not None:
        return replace(measured(sample, "MiB"), high=upper)
    away = reach(curve, asked.place)
    if away.octaves != 0 and _is_covered(curve, asked.place):
        origin, low = Origin.EXTRAPOLATED, curve.outside_low
    else:
        origin, low, _ = _bounds(curve, away, asked)
    smallest = min(sample.value for sample in curve.samples)
    least = smallest if away.octaves == 0 else max(float(bound.least(places_of([asked.place]))[0]), smallest)
    value = min(max(curve.value_at(asked.place, away.held_at), least), upper)
    bottom = max(value * math.exp(-low), smallest)
    return Estimate(value, bottom, upper, "MiB", origin, nearest_rows(curve, away.held_at))


def _is_covered(curve: Curve, place: Place) -> bool:
    """Tell whether a measured run at least as large in all parts bounds this one."""
    return any(
        all(asked <= known for asked, known in zip(place, sample.place, strict=True))
        for sample in curve.samples
    )


def _bounds(curve: Curve, away: PlaceReach, asked: Asked) -> tuple[Origin, float, float]:
    if away.octaves == 0:
        return (Origin.INTERPOLATED, *curve.inside_bounds(asked.place))
    if away.octaves is not None and away.octaves <= ONE_OCTAVE:
        return Origin.EXTRAPOLATED, curve.outside_low, curve.outside_high
    if not asked.allow_prior:
        raise refusals.outside(asked.name, asked.query, curve)
    extra = MARGIN * away.total_octaves
    return Origin.ASSUMED, curve.outside_low + extra, curve.outside_high + extra


def nearest_rows(curve: Curve, place: Place) -> tuple[str, ...]:
    """Name the rows of the measured places nearest to a place."""
    octaves = np.abs(curve.sample_logs - np.log2(place)).sum(axis=1)
    near = np.argsort(octaves.round(9), kind="stable")[:_ROWS]  # of equally near ones the first
    return tuple(row for number in near for row in curve.samples[number].rows)

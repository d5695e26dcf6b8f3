"""Answer questions from one curve: measured, interpolated, extrapolated, assumed, or refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models import query as refusals
from libra_plan.models.costs.base import Array, Flags, Places
from libra_plan.models.curves.curve import MARGIN, REPEAT_NOISE, RUN_NOISE, Curve, CurveSample
from libra_plan.models.curves.domain import Reaches
from libra_plan.models.memory.bound import MemoryBound
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.query import Query

__all__ = ["ONE_OCTAVE", "Answer", "Asked", "answered", "measured_time", "memories_from", "times_from"]

Answer: TypeAlias = Estimate | RefusedError

ONE_OCTAVE = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions of one layout with their places (rows, 3), and the name of the profile that they go to."""

    name: str
    queries: Sequence[Query]
    places: Places
    allow_prior: bool

    @property
    def layout(self) -> Layout:
        """The layout of all of them."""
        return self.queries[0].layout

    def only(self, rows: Sequence[int]) -> Asked:
        """Return some of the questions."""
        return replace(self, queries=[self.queries[row] for row in rows], places=self.places[list(rows)])


def answered(ask: Callable[[], Estimate]) -> Answer:
    """Return the answer, or the refusal as a value."""
    try:
        return ask()
    except RefusedError as refusal:
        return refusal


def times_from(curve: Curve, asked: Asked) -> list[Answer]:
    """Answer times, seconds."""
    away = curve.reach(asked.places)
    values = curve.values(asked.places, away.held_at)
    origins, low, high = _bounds(curve, asked, away, np.zeros(len(values), dtype=bool))
    below, above = curve.form.host_bounds(asked.places)
    low, high = values * np.exp(-np.maximum(low, below)), values * np.exp(np.maximum(high, above))
    answers = _made(asked, curve, origins, (values, low, high), "s")
    for row, sample in _measured(curve, asked):
        answers[row] = measured_time(sample, float(below[row]), float(above[row]))
    return answers


def measured_time(sample: CurveSample, below: float, above: float) -> Estimate:
    """Return measured seconds exactly, between what other runs and hosts (`below`, `above`) may take."""
    own = _exactly_as_measured(sample, "s", RUN_NOISE)
    low, high = own.value * math.exp(-below), own.value * math.exp(above)
    return replace(own, low=min(own.low, low), high=max(own.high, high))


def memories_from(curve: Curve, bound: MemoryBound, asked: Asked) -> list[Answer]:
    """Answer memory, MiB; never less than the smallest measured peak, outside than any smaller run."""
    away, upper = curve.reach(asked.places), bound.at(asked.places)
    inside = away.octaves == 0
    origins, low, _ = _bounds(curve, asked, away, ~inside & bound.covered(asked.places))
    smallest = min(sample.value for sample in curve.samples)
    least = np.where(inside, smallest, np.maximum(bound.least(asked.places), smallest))
    value = np.minimum(np.maximum(curve.values(asked.places, away.held_at), least), upper)
    answers = _made(asked, curve, origins, (value, np.maximum(value * np.exp(-low), smallest), upper), "MiB")
    for row, sample in _measured(curve, asked):
        answers[row] = replace(_exactly_as_measured(sample, "MiB", REPEAT_NOISE), high=float(upper[row]))
    return answers


def _measured(curve: Curve, asked: Asked) -> Iterator[tuple[int, CurveSample]]:
    for row, (batch, length, output) in enumerate(asked.places.tolist()):
        sample = curve.measured_at.get((batch, length, output))
        if sample is not None:
            yield row, sample


def _exactly_as_measured(sample: CurveSample, unit: str, noise: float) -> Estimate:
    """Return a measured value between its lowest and highest repeat, at least ± `noise`."""
    value = sample.value
    low, high = min(sample.low, value * (1 - noise)), max(sample.high, value * (1 + noise))
    return Estimate(value, low, high, unit, Origin.MEASURED, sample.rows)


def _bounds(
    curve: Curve, asked: Asked, away: Reaches, covered: Flags
) -> tuple[list[Origin | None], Array, Array]:
    """Return origins (None: refused) and ln factors below and above; `covered` counts as one octave off."""
    inside = away.octaves == 0
    near = ~inside & (covered | (away.octaves <= ONE_OCTAVE))
    inner_low, inner_high = curve.inside_bounds(asked.places)
    extra = np.where(near, 0.0, MARGIN * away.total_octaves)
    low = np.where(inside, inner_low, curve.outside_low + extra)
    high = np.where(inside, inner_high, curve.outside_high + extra)
    far = Origin.ASSUMED if asked.allow_prior else None
    origins = [
        Origin.INTERPOLATED if within else Origin.EXTRAPOLATED if beside else far
        for within, beside in zip(inside.tolist(), near.tolist(), strict=True)
    ]
    return origins, low, high


def _made(
    asked: Asked,
    curve: Curve,
    origins: Sequence[Origin | None],
    numbers: tuple[Array, Array, Array],
    unit: str,
) -> list[Answer]:
    columns = zip(*(each.tolist() for each in numbers), strict=True)
    return [
        refusals.outside(asked.name, query, curve)
        if origin is None
        else Estimate(value, low, high, unit, origin)
        for query, origin, (value, low, high) in zip(asked.queries, origins, columns, strict=True)
    ]

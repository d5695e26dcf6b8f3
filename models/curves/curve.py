"""One quantity (time or memory) of one layout: form, correction, domain and honest errors.

Correct a form by what it leaves over at measured places, smoothly, fading away from them.

Kriging of ln(measured / form) with a Matérn-5/2 kernel over log2 places: it passes near the
measured points, as near as their noise allows, and returns to the plain form far from all of them.

Bounds that hold as often as they say: ranks of errors made on groups left out of the fit.

Split conformal prediction, by group: k = ⌈(n + 1)·level⌉-th smallest of n errors covers a new group
with probability ≥ level. With too few errors for that rank, the largest one and a margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import msgspec
import numpy as np

from libra_plan.models.costs.base import Array, FitForm, Place, Places, places_of
from libra_plan.models.costs.decode import DecodeForm, ServeForm
from libra_plan.models.costs.memory import CacheForm, ChunkForm
from libra_plan.models.costs.passes import SoftFloorForm
from libra_plan.models.curves.domain import Domain, hull_of

__all__ = [
    "LEAST_POINTS",
    "MARGIN",
    "REPEAT_NOISE",
    "RUN_NOISE",
    "AnyForm",
    "Curve",
    "CurveSample",
    "Grouping",
    "HeldOut",
    "Recipe",
    "Residual",
    "bounded",
    "fit_curve",
    "fit_plain",
    "fit_residual",
    "launch_bound",
    "log_place",
    "upper_quantile",
]

MARGIN = math.log(1.15)
"""One octave outside, decode forms err by 15 % at the 90th percentile (public decode timings)."""
LEAST_POINTS = 6
"""Four points can miss by more than 100 %; six is the least that public decode timings allow."""
TIME_LEVEL = 0.90
MEMORY_LEVEL = 0.95
FEW_TIME = MARGIN
FEW_MEMORY = float(np.log(1.03))
REPEAT_NOISE = 0.01
"""No bound is tighter than 1 %: repeats of published timings differ by 0.2 to 1 %."""
RUN_NOISE = 0.015
"""90 % of GPU-bound steps measured twice, on two cards and hosts, differ by 1.4 % (`h200_comparison.md`)."""
_HOST_RANGE = 2.0
"""On two hosts of one kind launches of the same passes took from half to twice the time."""
_SPREAD = 0.03
"""A row whose repeats spread by 3 % counts half."""
_BUSY = 1.5
"""Work of one and a half floors keeps the GPU busy."""
_MOST_CORRECTION = 0.3
"""No correction beyond e^±0.3: a form that misses by more is wrong, not imprecise."""

AnyForm = DecodeForm | ServeForm | SoftFloorForm | CacheForm | ChunkForm


class Grouping(str, Enum):
    """Say what is left out together: all points of one batch, one length or one place."""

    BATCH = "batch"
    LENGTH = "length"
    PLACE = "place"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a quantity is fitted: the form, the correction's length (octaves) and noise, the groups."""

    fit: FitForm
    length: float
    noise: float
    groupings: tuple[Grouping, ...]
    one_sided: bool = False


class CurveSample(msgspec.Struct, frozen=True):
    """One measured place: value with its lowest and highest repeat, and the rows it came from."""

    batch: float
    length: float
    output: float
    value: float
    low: float
    high: float
    rows: tuple[str, ...]

    @property
    def place(self) -> Place:
        """Give batch, length, output."""
        return (self.batch, self.length, self.output)

    @property
    def weight(self) -> float:
        """Weigh by the spread of repeats: 1 without spread, ½ at 3 %."""
        return 1.0 / (1.0 + ((self.high - self.low) / (2 * self.value) / _SPREAD) ** 2)


class HeldOut(msgspec.Struct, frozen=True):
    """ln(measured / predicted) of one sample when its whole group was left out of the fit."""

    grouping: Grouping
    group: str
    sample: int
    log_error: float
    inside: bool


class Curve(msgspec.Struct, frozen=True, dict=True):
    """A fitted quantity. Bounds are ln factors: `inside_*` within the hull, `outside_*` one octave out.

    `busy` bounds steps whose work outlasts the host's launches: launch-bound steps vary several
    times as much, and their errors say nothing about the others.
    """

    form: AnyForm
    residual: Residual
    samples: tuple[CurveSample, ...]
    domain: Domain
    held_out: tuple[HeldOut, ...]
    inside_low: float
    inside_high: float
    outside_low: float
    outside_high: float
    busy: float | None

    def inside_bounds(self, place: Place) -> tuple[float, float]:
        """Give the ln factors below and above at a place within the hull."""
        if self.busy is not None and not launch_bound(self.form, place):
            return min(self.busy, self.inside_low), min(self.busy, self.inside_high)
        return self.inside_low, self.inside_high

    def inside_bounds_many(self, at: Places) -> tuple[Array, Array]:
        """Give `inside_bounds` of places (rows, 3)."""
        low, high = np.full(len(at), self.inside_low), np.full(len(at), self.inside_high)
        if self.busy is None or not isinstance(self.form, SoftFloorForm):
            return low, high
        working = self.form.work(at) >= _BUSY * self.form.floor_s
        return np.where(working, np.minimum(self.busy, low), low), np.where(
            working, np.minimum(self.busy, high), high
        )

    def host_bounds(self, at: Places) -> tuple[Array, Array]:
        """Give the ln factors, below and above, between which another host's launches may move a step.

        Shape (rows,) each; 0 where no launches were fitted, little where work outlasts them.
        """
        if not isinstance(self.form, SoftFloorForm) or self.form.floor_s == 0:
            return np.zeros(len(at)), np.zeros(len(at))
        form, work = self.form, self.form.work(at)
        floors = (form.floor_s / _HOST_RANGE - form.floor_s, 0.0, form.floor_s * _HOST_RANGE - form.floor_s)
        fast, own, slow = (np.log(form.over(work, more)) for more in floors)
        return own - fast, slow - own

    @cached_property
    def measured_at(self) -> dict[Place, CurveSample]:
        """Map measured places."""
        return {sample.place: sample for sample in self.samples}

    @cached_property
    def sample_logs(self) -> Array:
        """Give log2 of the measured places, (samples, 3)."""
        logs: Array = np.log2(places_of([sample.place for sample in self.samples]))
        return logs

    @cached_property
    def outputs(self) -> tuple[float, float]:
        """Give the least and the greatest output that was measured."""
        outputs = [sample.output for sample in self.samples]
        return min(outputs), max(outputs)

    def form_at(self, place: Place) -> float:
        """Evaluate the bare form."""
        return float(self.form.predict(places_of([place]))[0])

    def value_at(self, place: Place, held_at: Place | None = None) -> float:
        """Evaluate form and correction; outside the hull the correction is held from `held_at`."""
        logs = np.log2(places_of([held_at or place]))
        return self.form_at(place) * float(np.exp(bounded(self.residual.log_factor(logs)))[0])


def bounded(log_factor: Array) -> Array:
    """Keep a correction, ln of a factor, within what an imprecise form can need."""
    kept: Array = np.clip(log_factor, -_MOST_CORRECTION, _MOST_CORRECTION)
    return kept


def fit_plain(recipe: Recipe, samples: Sequence[CurveSample]) -> tuple[AnyForm, Residual]:
    """Fit form and correction to samples, without errors."""
    at = places_of([sample.place for sample in samples])
    measured = np.array([sample.value for sample in samples])
    weights = np.array([sample.weight for sample in samples])
    form = recipe.fit(at, measured, weights)
    log_errors = bounded(np.log(measured / np.maximum(form.predict(at), 1e-12)))
    return form, fit_residual(np.log2(at), log_errors, weights, recipe.length, recipe.noise)


def fit_curve(recipe: Recipe, samples: Sequence[CurveSample]) -> Curve:
    """Fit a curve with its leave-one-group-out errors and the bounds drawn from them."""
    form, residual = fit_plain(recipe, samples)
    held_out = tuple(_leave_groups_out(recipe, samples))
    level, few = (MEMORY_LEVEL, FEW_MEMORY) if recipe.one_sided else (TIME_LEVEL, FEW_TIME)
    inside = [row.log_error for row in held_out if row.inside] or [row.log_error for row in held_out]
    everywhere = [row.log_error for row in held_out]
    if not recipe.one_sided:
        inside, everywhere = list(map(abs, inside)), list(map(abs, everywhere))
    high = max(upper_quantile(inside, level, few), REPEAT_NOISE)
    far = max(upper_quantile(everywhere, level, few), high) + few
    below = [-error for error in inside] if recipe.one_sided else inside
    low = max(upper_quantile(below, level, few), REPEAT_NOISE)
    places = [log_place(sample.place) for sample in samples]
    busy = _busy_bound(form, samples, held_out, level, few)
    domain = hull_of(places)
    return Curve(form, residual, tuple(samples), domain, held_out, low, high, max(low, far), far, busy)


def launch_bound(form: AnyForm, place: Place) -> bool:
    """Tell whether the host's launches take about as long as the work they hide."""
    if not isinstance(form, SoftFloorForm):
        return False
    return float(form.work(places_of([place]))[0]) < _BUSY * form.floor_s


def _busy_bound(
    form: AnyForm, samples: Sequence[CurveSample], held_out: Sequence[HeldOut], level: float, few: float
) -> float | None:
    if not isinstance(form, SoftFloorForm):
        return None
    errors = [abs(row.log_error) for row in held_out if not launch_bound(form, samples[row.sample].place)]
    return max(upper_quantile(errors, level, few), REPEAT_NOISE)


def log_place(place: Place) -> tuple[float, float]:
    """Give log2 of batch and length."""
    return float(np.log2(place[0])), float(np.log2(place[1]))


def _leave_groups_out(recipe: Recipe, samples: Sequence[CurveSample]) -> list[HeldOut]:
    result: list[HeldOut] = []
    for grouping in recipe.groupings:
        names = [_group(grouping, sample) for sample in samples]
        for name in dict.fromkeys(names):
            kept = [sample for sample, other in zip(samples, names, strict=True) if other != name]
            if len(kept) >= LEAST_POINTS:
                left = [index for index, other in enumerate(names) if other == name]
                result += _errors(recipe, samples, kept, left, (grouping, name))
    return result


def _errors(
    recipe: Recipe,
    samples: Sequence[CurveSample],
    kept: Sequence[CurveSample],
    left: Sequence[int],
    group: tuple[Grouping, str],
) -> list[HeldOut]:
    form, residual = fit_plain(recipe, kept)
    hull = hull_of([log_place(sample.place) for sample in kept])
    at: Places = places_of([samples[index].place for index in left])
    inside = [hull.contains(log_place(samples[index].place)) for index in left]
    held = [
        samples[index].place if within else (*_clamped(hull, samples[index].place), samples[index].output)
        for index, within in zip(left, inside, strict=True)
    ]
    factor = bounded(residual.log_factor(np.log2(places_of(held))))
    logs = (
        np.log(np.array([samples[index].value for index in left]) / np.maximum(form.predict(at), 1e-12))
        - factor
    )
    return [
        HeldOut(*group, index, float(error), within)
        for index, error, within in zip(left, logs, inside, strict=True)
    ]


def _clamped(hull: Domain, place: Place) -> tuple[float, float]:
    first, second = hull.clamp(log_place(place))
    return 2.0**first, 2.0**second


def _group(grouping: Grouping, sample: CurveSample) -> str:
    if grouping is Grouping.BATCH:
        return f"{sample.batch:g}"
    if grouping is Grouping.LENGTH:
        return f"{sample.length:g}"
    return f"{sample.batch:g}×{sample.length:g}×{sample.output:g}"


class Residual(msgspec.Struct, frozen=True):
    """A smooth correction: `places` in log2, one kriging weight each, kernel length in octaves."""

    places: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    length: float

    def log_factor(self, logs: Array) -> Array:
        """Give ln of the factor at log2 places (rows, axes)."""
        if not self.weights:
            return np.zeros(len(logs))
        factor: Array = _kernel(logs, np.asarray(self.places), self.length) @ np.asarray(self.weights)
        return factor


def _kernel(left: Array, right: Array, length: float) -> Array:
    distance = np.sqrt(((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2)) * np.sqrt(5.0) / length
    similarity: Array = (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
    return similarity


def fit_residual(logs: Array, log_errors: Array, weights: Array, length: float, noise: float) -> Residual:
    """Fit the correction; `noise` is the variance of a good row against the kernel's 1.

    A row with weight w < 1 is taken to be noisier by 1/w, so that bad rows do not bend the form.
    """
    nugget = np.diag(noise / np.maximum(weights, 1e-3))
    solved = np.linalg.solve(_kernel(logs, logs, length) + nugget, log_errors)
    return Residual(tuple(tuple(map(float, row)) for row in logs), tuple(map(float, solved)), length)


def upper_quantile(errors: Sequence[float], level: float, margin: float) -> float:
    """Give the conformal upper bound of ln errors at `level`, plus `margin` when there are too few."""
    ordered = sorted(errors)
    rank = math.ceil((len(ordered) + 1) * level)
    if rank <= len(ordered):
        return max(ordered[rank - 1], 0.0)
    return max([0.0, *ordered]) + margin

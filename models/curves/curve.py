"""One quantity (time or memory) of one layout: form, correction, domain and held-out errors.

The correction is kriging of ln(measured / form) with a Matérn-5/2 kernel over log2 places: it passes
near the measured points, as near as their noise allows, and fades to the plain form away from them.

Bounds are split conformal, by group: the k = ⌈(n + 1)·level⌉-th smallest of n errors made on groups
left out of the fit covers a new group with probability ≥ level. With too few errors for that rank, the
largest one and a margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import msgspec
import numpy as np

from libra_plan.models.costs.base import Array, FitForm, Flags, Place, Places, places_of
from libra_plan.models.costs.decode import DecodeForm, ServeForm
from libra_plan.models.costs.memory import CacheForm, ChunkForm
from libra_plan.models.costs.passes import SoftFloorForm
from libra_plan.models.curves.domain import Domain, Reaches, hull_of

__all__ = [
    "LEAST_POINTS",
    "MARGIN",
    "MEMORY_LEVEL",
    "REPEAT_NOISE",
    "RUN_NOISE",
    "TIME_LEVEL",
    "AnyForm",
    "Curve",
    "CurveSample",
    "Grouping",
    "HeldOut",
    "Recipe",
    "Residual",
    "error_bound",
    "fit_curve",
    "fit_plain",
    "fit_residual",
    "upper_quantile",
]

MARGIN = math.log(1.15)
"""One octave outside, decode forms err by 15 % at the 90th percentile (public decode timings)."""
LEAST_POINTS = 6
"""Four points can miss by more than 100 %; six is the least that public decode timings allow."""
TIME_LEVEL, MEMORY_LEVEL = 0.90, 0.95
"""Share of groups that the bounds hold for."""
_FEW_TIME, _FEW_MEMORY = MARGIN, float(np.log(1.03))
"""Margins of too few errors."""
REPEAT_NOISE = 0.01
"""No bound is tighter than 1 %: repeats of published timings differ by 0.2 to 1 %."""
RUN_NOISE = 0.015
"""90 % of GPU-bound steps measured twice, on two cards and hosts, differ by 1.4 % (`h200_comparison.md`)."""
_SPREAD = 0.03
"""A row whose repeats spread by 3 % counts half."""
_MOST_CORRECTION = 0.3
"""No correction beyond e^±0.3: a form that misses by more is wrong, not imprecise."""

AnyForm = DecodeForm | ServeForm | SoftFloorForm | CacheForm | ChunkForm


class Grouping(str, Enum):
    """What is left out together: all points of one batch, one length or one place."""

    BATCH = "batch"
    LENGTH = "length"
    PLACE = "place"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings of a fit: the form, the correction's length (octaves) and noise, the groups."""

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
        """Batch, length, output."""
        return (self.batch, self.length, self.output)

    def group(self, grouping: Grouping) -> str:
        """Return the name of the group that is left out together with this sample."""
        if grouping is Grouping.PLACE:
            return f"{self.batch:g}×{self.length:g}×{self.output:g}"
        return f"{self.batch if grouping is Grouping.BATCH else self.length:g}"

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


class Residual(msgspec.Struct, frozen=True):
    """A smooth correction: `places` in log2, one kriging weight each, kernel length in octaves."""

    places: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    length: float

    def log_factor(self, logs: Array) -> Array:
        """Return ln of the factor at log2 places (rows, axes)."""
        if not self.weights:
            return np.zeros(len(logs))
        factor: Array = _kernel(logs, np.asarray(self.places), self.length) @ np.asarray(self.weights)
        return factor


def fit_residual(logs: Array, log_errors: Array, weights: Array, length: float, noise: float) -> Residual:
    """Fit the correction; `noise` is the variance of a good row against the kernel's 1.

    A row with weight w < 1 is taken to be noisier by 1/w, so that bad rows do not bend the form.
    """
    nugget = np.diag(noise / np.maximum(weights, 1e-3))
    solved = np.linalg.solve(_kernel(logs, logs, length) + nugget, log_errors)
    return Residual(tuple(tuple(map(float, row)) for row in logs), tuple(map(float, solved)), length)


def _kernel(left: Array, right: Array, length: float) -> Array:
    distance = np.sqrt(((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2)) * np.sqrt(5.0) / length
    similarity: Array = (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
    return similarity


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

    def inside_bounds(self, at: Places) -> tuple[Array, Array]:
        """Return the ln factors below and above at places within the hull."""
        low, high = np.full(len(at), self.inside_low), np.full(len(at), self.inside_high)
        if self.busy is None:
            return low, high
        working = ~self.form.launch_bound(at)
        return (
            np.where(working, np.minimum(self.busy, low), low),
            np.where(working, np.minimum(self.busy, high), high),
        )

    @cached_property
    def measured_at(self) -> dict[Place, CurveSample]:
        """The samples by place."""
        return {sample.place: sample for sample in self.samples}

    @cached_property
    def outputs(self) -> tuple[float, float]:
        """The least and the greatest output that was measured."""
        outputs = [sample.output for sample in self.samples]
        return min(outputs), max(outputs)

    def reach(self, at: Places) -> Reaches:
        """Measure how far places lie from the measured ones."""
        return self.domain.reach(at, self.outputs)

    def values(self, at: Places, held_at: Places) -> Array:
        """Evaluate form and correction; outside the hull the correction is held from `held_at`."""
        correction = np.exp(_bounded(self.residual.log_factor(np.log2(held_at))))
        found: Array = self.form.predict(at) * correction
        return found


def upper_quantile(errors: Sequence[float], level: float, margin: float) -> float:
    """Return the conformal upper bound of ln errors at `level`, plus `margin` when there are too few."""
    ordered = sorted(errors)
    rank = math.ceil((len(ordered) + 1) * level)
    if rank <= len(ordered):
        return max(ordered[rank - 1], 0.0)
    return max([0.0, *ordered]) + margin


def error_bound(errors: Sequence[float], one_sided: bool) -> tuple[float, float]:
    """Return the bound of ln errors of memory (`one_sided`) or time, and the margin of one octave outside."""
    level, few = (MEMORY_LEVEL, _FEW_MEMORY) if one_sided else (TIME_LEVEL, _FEW_TIME)
    return max(upper_quantile(errors, level, few), REPEAT_NOISE), few


def _bounded(log_factor: Array) -> Array:
    """Keep a correction, ln of a factor, within what an imprecise form can need."""
    kept: Array = np.clip(log_factor, -_MOST_CORRECTION, _MOST_CORRECTION)
    return kept


def fit_plain(recipe: Recipe, samples: Sequence[CurveSample]) -> tuple[AnyForm, Residual]:
    """Fit form and correction to samples, without errors."""
    at = places_of([sample.place for sample in samples])
    measured = np.array([sample.value for sample in samples])
    weights = np.array([sample.weight for sample in samples])
    form = recipe.fit(at, measured, weights)
    log_errors = _bounded(np.log(measured / np.maximum(form.predict(at), 1e-12)))
    return form, fit_residual(np.log2(at), log_errors, weights, recipe.length, recipe.noise)


def fit_curve(recipe: Recipe, samples: Sequence[CurveSample]) -> Curve:
    """Fit a curve with its leave-one-group-out errors and the bounds drawn from them."""
    form, residual = fit_plain(recipe, samples)
    held_out = tuple(_leave_groups_out(recipe, samples))
    everywhere = [row.log_error for row in held_out]
    inside = [row.log_error for row in held_out if row.inside] or everywhere
    if not recipe.one_sided:
        inside, everywhere = list(map(abs, inside)), list(map(abs, everywhere))
    high, few = error_bound(inside, recipe.one_sided)
    far = max(error_bound(everywhere, recipe.one_sided)[0], high) + few
    low, _ = error_bound([-error for error in inside] if recipe.one_sided else inside, recipe.one_sided)
    at = places_of([sample.place for sample in samples])
    busy = None
    if form.has_floor:
        bound = form.launch_bound(at)
        working = [abs(row.log_error) for row in held_out if not bound[row.sample]]
        busy, _ = error_bound(working, recipe.one_sided)
    domain = hull_of(np.log2(at[:, :2]))
    return Curve(form, residual, tuple(samples), domain, held_out, low, high, max(low, far), far, busy)


def _leave_groups_out(recipe: Recipe, samples: Sequence[CurveSample]) -> list[HeldOut]:
    result: list[HeldOut] = []
    for grouping in recipe.groupings:
        names = [sample.group(grouping) for sample in samples]
        for name in dict.fromkeys(names):
            kept = [sample for sample, other in zip(samples, names, strict=True) if other != name]
            if len(kept) >= LEAST_POINTS:
                left = [index for index, other in enumerate(names) if other == name]
                errors, inside = _errors(recipe, kept, [samples[index] for index in left])
                result += [
                    HeldOut(grouping, name, index, error, within)
                    for index, error, within in zip(left, errors.tolist(), inside.tolist(), strict=True)
                ]
    return result


def _errors(recipe: Recipe, kept: Sequence[CurveSample], left: Sequence[CurveSample]) -> tuple[Array, Flags]:
    """Return ln(measured / predicted) of samples left out, and which lie in the hull of the others."""
    form, residual = fit_plain(recipe, kept)
    hull = hull_of(np.log2(places_of([sample.place for sample in kept])[:, :2]))
    at = places_of([sample.place for sample in left])
    inside = hull.contains(np.log2(at[:, :2]))
    held = np.column_stack([np.exp2(hull.clamp(np.log2(at[:, :2]))), at[:, 2]])
    factor = _bounded(residual.log_factor(np.log2(np.where(inside[:, None], at, held))))
    measured = np.array([sample.value for sample in left])
    errors: Array = np.log(measured / np.maximum(form.predict(at), 1e-12)) - factor
    return errors, inside

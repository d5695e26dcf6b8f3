"""Ask a fitted profile many questions at once: the same answers as one by one, ten times as fast.

Places inside the measured hull are evaluated together by numpy; all others (measured places, places
outside, priors, refusals) go through `FittedProfile`, so there is one set of rules. Answers made
together name no rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from libra_plan.errors import RefusedError
from libra_plan.models.curve import Curve, bounded
from libra_plan.models.fit import FittedProfile
from libra_plan.models.forms import Place, Places, places_of
from libra_plan.models.layout_fit import LayoutFit
from libra_plan.models.layout_prior import MEMORY_MARGIN
from libra_plan.models.nnls import Array
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.query import Query
from libra_plan.models.samples import place_of

__all__ = ["Answer", "memory_many", "time_many"]

Answer: TypeAlias = Estimate | RefusedError

Flags: TypeAlias = NDArray[np.bool_]

_CHUNK = 4096
"""Places per numpy call: a kernel of 4,096 × 1,000 samples takes 32 MB."""


def time_many(fitted: FittedProfile, queries: Sequence[Query], *, allow_prior: bool = False) -> list[Answer]:
    """Answer `time_s` for every query, in order; what is refused is the refusal."""

    def one(query: Query) -> Estimate:
        return fitted.time_s(query, allow_prior=allow_prior)

    def together(fit: LayoutFit, places: Places, values: Array) -> Iterable[Estimate]:
        assert fit.time is not None
        bounds = (fit.time.inside_bounds(_place(row)) for row in places)
        return (_interpolated(value, *pair, "s") for value, pair in zip(values, bounds, strict=True))

    return _many(fitted, queries, one, lambda fit: fit.time, together)


def memory_many(
    fitted: FittedProfile, queries: Sequence[Query], *, allow_prior: bool = False
) -> list[Answer]:
    """Answer `memory_mib` for every query, in order; what is refused is the refusal."""

    def one(query: Query) -> Estimate:
        return fitted.memory_mib(query, allow_prior=allow_prior)

    def together(fit: LayoutFit, places: Places, values: Array) -> Iterable[Estimate]:
        curve = fit.memory
        assert curve is not None
        smallest = min(sample.value for sample in curve.samples)
        unseen = MEMORY_MARGIN if fit.memory_column == "peak_allocated_mib" else 1.0
        uppers = fitted.bounds[fit.layout].inside(places)
        for value, upper in zip(np.minimum(np.maximum(values, smallest), uppers), uppers, strict=True):
            low = max(float(value) * math.exp(-curve.inside_low), smallest)
            yield Estimate(float(value), low, float(upper) * unseen, "MiB", Origin.INTERPOLATED)

    return _many(fitted, queries, one, lambda fit: fit.memory, together)


def _interpolated(value: float, low: float, high: float, unit: str) -> Estimate:
    value = float(value)
    return Estimate(value, value * math.exp(-low), value * math.exp(high), unit, Origin.INTERPOLATED)


def _place(row: Array) -> Place:
    return float(row[0]), float(row[1]), float(row[2])


def _many(
    fitted: FittedProfile,
    queries: Sequence[Query],
    one: Callable[[Query], Estimate],
    curve_of: Callable[[LayoutFit], Curve | None],
    together: Callable[[LayoutFit, Places, Array], Iterable[Estimate]],
) -> list[Answer]:
    answers: list[Answer | None] = [None] * len(queries)
    for fit in fitted.fits:
        curve = curve_of(fit)
        if curve is None:
            continue
        numbers, places = _inside(fitted, fit, curve, queries)
        for start in range(0, len(numbers), _CHUNK):
            part = places[start : start + _CHUNK]
            values = curve.form.predict(part) * np.exp(bounded(curve.residual.log_factor(np.log2(part))))
            made = together(fit, part, values)
            for number, estimate in zip(numbers[start : start + _CHUNK], made, strict=True):
                answers[number] = estimate
    return [
        _asked(one, query) if answer is None else answer
        for query, answer in zip(queries, answers, strict=True)
    ]


def _asked(one: Callable[[Query], Estimate], query: Query) -> Answer:
    try:
        return one(query)
    except RefusedError as refusal:
        return refusal


def _inside(
    fitted: FittedProfile, fit: LayoutFit, curve: Curve, queries: Sequence[Query]
) -> tuple[list[int], Places]:
    """Find the queries of this layout whose places lie strictly in the hull and were not measured."""
    numbers: list[int] = []
    rows: list[Place] = []
    phase = fitted.profile.phase
    for number, query in enumerate(queries):
        if query.layout != fit.layout or (phase == "train" and query.dp != fit.base_dp):
            continue
        place = place_of(
            phase, query.batch_sequences, query.seq_len_tokens, query.prompt_tokens, query.output_tokens
        )
        if place is not None and min(place) > 0 and place not in curve.measured_at:
            numbers.append(number)
            rows.append(place)
    places = places_of(rows)
    plain = _strictly_in(curve, places) & ~_failed(fit, places)
    return [number for number, keep in zip(numbers, plain, strict=True) if keep], places[plain]


def _strictly_in(curve: Curve, places: Places) -> Flags:
    """Tell which places lie in the hull by more than rounding; a hull without area holds none."""
    corners = np.asarray(curve.domain.corners)
    least, most = curve.outputs
    inside: Flags = (places[:, 2] >= least) & (places[:, 2] <= most)
    inside &= np.isfinite(places).all(axis=1)
    if len(corners) < 3:
        return np.zeros(len(places), dtype=bool)
    logs = np.log2(places[:, :2])
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        along, towards = end - start, logs - start
        inside &= along[0] * towards[:, 1] - along[1] * towards[:, 0] > 1e-9
    return inside


def _failed(fit: LayoutFit, places: Places) -> Flags:
    failed: Flags = np.zeros(len(places), dtype=bool)
    for known in fit.failed_at:
        failed |= (places >= np.asarray(known)).all(axis=1)
    return failed

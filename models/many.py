"""Ask a fitted profile many questions at once: the same answers as one by one, many times as fast.

Places inside and outside the measured hull, other models' priors and layouts carried over are evaluated
together by numpy; measured places and what is refused for itself go through `FittedProfile`. Rules
that need more than a curve (data-parallel ranks, penalties of layouts) are the same functions as one by
one. Answers made together name no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from libra_plan.errors import RefusedError
from libra_plan.models import query as refusals
from libra_plan.models.costs.base import Array, Places
from libra_plan.models.curves.answers import ONE_OCTAVE, Asked
from libra_plan.models.curves.curve import MARGIN, Curve, bounded
from libra_plan.models.curves.domain import Reaches, reach_many
from libra_plan.models.curves.layouts import LARGEST_SIZE, LEAST_SIZE, LayoutFit, place_of
from libra_plan.models.fit import FittedProfile
from libra_plan.models.parallelism import Layout
from libra_plan.models.priors.layouts import MEMORY_MARGIN
from libra_plan.models.priors.ranks import memory_over_ranks, time_over_ranks
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.query import Query

__all__ = ["Answer", "memory_many", "time_many"]

Answer: TypeAlias = Estimate | RefusedError
Flags: TypeAlias = NDArray[np.bool_]

_CHUNK = 4096
"""Places per numpy call: a kernel of 4,096 × 1,000 samples takes 32 MB."""


def time_many(fitted: FittedProfile, queries: Sequence[Query], *, allow_prior: bool = False) -> list[Answer]:
    """Answer `time_s` for every query, in order; what is refused is the refusal."""

    def one(query: Query) -> Estimate:
        return fitted.time_s(query, allow_prior=allow_prior)

    def of_layout(asked: _Rows) -> list[Answer | None]:
        fit = fitted.by_layout.get(asked.layout)
        if fit is None or fit.time is None:
            return _times_by_prior(fitted, asked) if allow_prior else [None] * len(asked.queries)
        return _from_curve(_Times(fitted, fit, fit.time), asked)

    return _many(fitted, queries, allow_prior, of_layout, one)


def memory_many(
    fitted: FittedProfile, queries: Sequence[Query], *, allow_prior: bool = False
) -> list[Answer]:
    """Answer `memory_mib` for every query, in order; what is refused is the refusal."""

    def one(query: Query) -> Estimate:
        return fitted.memory_mib(query, allow_prior=allow_prior)

    def of_layout(asked: _Rows) -> list[Answer | None]:
        fit = fitted.by_layout.get(asked.layout)
        if fit is None or fit.memory is None:
            return _memories_by_prior(fitted, asked) if allow_prior else [None] * len(asked.queries)
        return _from_curve(_Memories(fitted, fit, fit.memory), asked)

    return _many(fitted, queries, allow_prior, of_layout, one)


class _Rows:
    """Questions of one layout whose places are complete: queries and places (rows, 3)."""

    def __init__(self, name: str, queries: Sequence[Query], places: Places, allow_prior: bool) -> None:
        self.name, self.queries, self.places, self.allow_prior = name, queries, places, allow_prior

    @property
    def layout(self) -> Layout:
        """Give the layout of all of them."""
        return self.queries[0].layout

    def asked(self, row: int) -> Asked:
        """Give one of them as it is asked alone."""
        batch, length, output = self.places[row].tolist()
        return Asked(self.name, self.queries[row], (batch, length, output), self.allow_prior)


def _many(
    fitted: FittedProfile,
    queries: Sequence[Query],
    allow_prior: bool,
    of_layout: Callable[[_Rows], list[Answer | None]],
    one: Callable[[Query], Estimate],
) -> list[Answer]:
    """Answer by layout and in pieces; a question that is not answered together is asked alone."""
    answers: list[Answer | None] = [None] * len(queries)
    for numbers, places in _by_layout(fitted, queries):
        for start in range(0, len(numbers), _CHUNK):
            part = numbers[start : start + _CHUNK]
            rows = _Rows(
                fitted.name, [queries[number] for number in part], places[start : start + _CHUNK], allow_prior
            )
            for number, answer in zip(part, of_layout(rows), strict=True):
                answers[number] = answer
    return [
        _asked(partial(one, query)) if answer is None else answer
        for query, answer in zip(queries, answers, strict=True)
    ]


def _asked(ask: Callable[[], Estimate]) -> Answer:
    try:
        return ask()
    except RefusedError as refusal:
        return refusal


def _by_layout(fitted: FittedProfile, queries: Sequence[Query]) -> Iterable[tuple[list[int], Places]]:
    """Group complete questions by layout: their numbers and places."""
    phase = fitted.profile.phase
    groups: dict[tuple[int, ...], tuple[list[int], list[tuple[float, float, float]]]] = {}
    for number, each in enumerate(queries):
        place = place_of(
            phase, each.batch_sequences, each.seq_len_tokens, each.prompt_tokens, each.output_tokens
        )
        if place is not None:
            numbers, rows = groups.setdefault((each.tp, each.pp, each.cp, each.ep), ([], []))
            numbers.append(number)
            rows.append(place)
    for numbers, rows in groups.values():
        places = np.array(rows)
        whole: Flags = np.all((places >= LEAST_SIZE) & (places <= LARGEST_SIZE), axis=1)
        yield [number for number, keep in zip(numbers, whole, strict=True) if keep], places[whole]


class _Times:
    """Answers of a time curve, as `answers.time_from` and `FittedProfile.time_s` give them."""

    def __init__(self, fitted: FittedProfile, fit: LayoutFit, curve: Curve) -> None:
        self.fitted, self.fit, self.curve = fitted, fit, curve

    def alone(self, query: Query, place: tuple[float, ...]) -> bool:
        """Tell whether a question is about a measured step, at these ranks or others."""
        if place in self.curve.measured_at:
            return True
        return any(each.dp == query.dp and each.sample.place == place for each in self.fit.other_ranks)

    def estimates(self, rows: _Rows, away: Reaches, values: Array) -> Iterable[Answer]:
        """Give value and bounds of every row."""
        origins, low, high = _bounds(self.curve, rows, away, np.zeros(len(values), dtype=bool))
        below, above = self.curve.host_bounds(rows.places)
        low, high = np.maximum(low, below), np.maximum(high, above)
        return _made(rows, self.curve, origins, (values, values * np.exp(-low), values * np.exp(high)), "s")

    def over_ranks(self, estimate: Estimate, asked: Asked) -> Estimate:
        """Carry an answer to the data-parallel ranks asked for."""
        return time_over_ranks(self.fitted.profile, self.fit, estimate, asked)


class _Memories:
    """Answers of a memory curve, as `answers.memory_from` and `FittedProfile.memory_mib` give them."""

    def __init__(self, fitted: FittedProfile, fit: LayoutFit, curve: Curve) -> None:
        self.fitted, self.fit, self.curve = fitted, fit, curve

    def alone(self, query: Query, place: tuple[float, ...]) -> bool:
        """Tell whether a question is about a measured step."""
        return place in self.curve.measured_at

    def estimates(self, rows: _Rows, away: Reaches, values: Array) -> Iterable[Answer]:
        """Give value and bounds of every row."""
        bound, inside = self.fitted.bounds[self.fit.layout], away.octaves == 0
        origins, low, _ = _bounds(self.curve, rows, away, ~inside & bound.covered(rows.places))
        smallest, upper = min(sample.value for sample in self.curve.samples), bound.anywhere(rows.places)
        least = np.where(inside, smallest, np.maximum(bound.least(rows.places), smallest))
        value = np.minimum(np.maximum(values, least), upper)
        bottom = np.maximum(value * np.exp(-low), smallest)
        unseen = MEMORY_MARGIN if self.fit.memory_column == "peak_allocated_mib" else 1.0
        return _made(rows, self.curve, origins, (value, bottom, upper * unseen), "MiB")

    def over_ranks(self, estimate: Estimate, asked: Asked) -> Estimate:
        """Carry an answer to the data-parallel ranks asked for."""
        return memory_over_ranks(
            self.fitted.profile, self.fit.layout, self.fit.base_dp, asked.query.dp, estimate
        )


def _from_curve(source: _Times | _Memories, rows: _Rows) -> list[Answer | None]:
    answers: list[Answer | None] = [None] * len(rows.queries)
    fit, curve = source.fit, source.curve
    known = zip(rows.queries, map(tuple, rows.places.tolist()), strict=True)
    plain = ~np.array([source.alone(query, place) for query, place in known]) & ~_failed(fit, rows.places)
    numbers = np.flatnonzero(plain).tolist()
    if not numbers:
        return answers
    own = _Rows(rows.name, [rows.queries[number] for number in numbers], rows.places[plain], rows.allow_prior)
    away = reach_many(curve, own.places)
    correction = np.exp(bounded(curve.residual.log_factor(np.log2(away.held_at))))
    made = source.estimates(own, away, curve.form.predict(own.places) * correction)
    alone_dp = fit.base_dp if source.fitted.profile.phase == "train" else None
    for row, (number, answer) in enumerate(zip(numbers, made, strict=True)):
        if alone_dp is None or own.queries[row].dp == alone_dp or isinstance(answer, RefusedError):
            answers[number] = answer
        else:
            answers[number] = _asked(partial(source.over_ranks, answer, own.asked(row)))
    return answers


def _failed(fit: LayoutFit, places: Places) -> Flags:
    failed: Flags = np.zeros(len(places), dtype=bool)
    for known in fit.failed_at:
        failed |= (places >= np.asarray(known)).all(axis=1)
    return failed


def _bounds(
    curve: Curve, rows: _Rows, away: Reaches, covered: Flags
) -> tuple[list[Origin | None], Array, Array]:
    """Give origins (None: refused) and the ln factors below and above; `covered` counts as one octave off."""
    inside = away.octaves == 0
    near = ~inside & (covered | (away.octaves <= ONE_OCTAVE))
    inner_low, inner_high = curve.inside_bounds_many(rows.places)
    extra = np.where(near, 0.0, MARGIN * away.total_octaves)
    low = np.where(inside, inner_low, curve.outside_low + extra)
    high = np.where(inside, inner_high, curve.outside_high + extra)
    far = Origin.ASSUMED if rows.allow_prior else None
    origins = [
        Origin.INTERPOLATED if within else Origin.EXTRAPOLATED if beside else far
        for within, beside in zip(inside.tolist(), near.tolist(), strict=True)
    ]
    return origins, low, high


def _made(
    rows: _Rows,
    curve: Curve,
    origins: Sequence[Origin | None],
    numbers: tuple[Array, Array, Array],
    unit: str,
) -> Iterable[Answer]:
    columns = zip(*(each.tolist() for each in numbers), strict=True)
    for query, origin, (value, low, high) in zip(rows.queries, origins, columns, strict=True):
        if origin is None:
            yield refusals.outside(rows.name, query, curve)
        else:
            yield Estimate(value, low, high, unit, origin)


def _times_by_prior(fitted: FittedProfile, rows: _Rows) -> list[Answer | None]:
    """Carry what other models or another layout take over to a layout without times of its own."""
    try:
        source = fitted.time_source(rows.layout, allow_prior=True)
    except RefusedError:
        return [None] * len(rows.queries)
    if source is None:
        assert fitted.prior is not None
        bases: Sequence[Answer] = fitted.prior.times_s(rows.places)
    else:
        bases = time_many(fitted, _with_layout(rows.queries, source), allow_prior=True)
    return [
        base
        if isinstance(base, RefusedError)
        else _asked(partial(fitted.carried_time_s, base, rows.asked(row), source))
        for row, base in enumerate(bases)
    ]


def _memories_by_prior(fitted: FittedProfile, rows: _Rows) -> list[Answer | None]:
    """Carry memory over where other models or another layout give it; the shape alone is asked alone."""
    source = fitted.memory_source(rows.layout)
    if source is None:
        return [None] * len(rows.queries)
    if fitted.prior is not None and not fitted.layouts:
        bases: Sequence[Answer] = fitted.prior.memories_mib(rows.places)
        source = None
    else:
        bases = memory_many(fitted, _with_layout(rows.queries, source), allow_prior=True)
    return [
        base
        if isinstance(base, RefusedError)
        else _asked(partial(fitted.carried_memory_mib, base, rows.asked(row), source))
        for row, base in enumerate(bases)
    ]


def _with_layout(queries: Sequence[Query], layout: Layout) -> list[Query]:
    return [replace(query, tp=layout.tp, pp=layout.pp, cp=layout.cp, ep=layout.ep) for query in queries]

"""Turn the measured points of a profile into answers with bounds, or into refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models import query as refusals
from libra_plan.models.costs.base import LARGEST_SIZE, LEAST_SIZE, DecodeCoefficients, Flags
from libra_plan.models.curves.answers import (
    ONE_OCTAVE,
    Answer,
    Asked,
    answered,
    measured_time,
    memories_from,
    times_from,
)
from libra_plan.models.curves.layouts import (
    LayoutFit,
    fit_layout,
    memory_samples,
    place_of,
    rows_by_layout,
    time_samples,
)
from libra_plan.models.memory.bound import MemoryBound, run_reserve
from libra_plan.models.memory.shapes import engine_memory, engine_static, shape_memory
from libra_plan.models.memory.states import standing_mib, weights_mib
from libra_plan.models.parallelism import Layout, layout_faults, octaves_between
from libra_plan.models.priors.layouts import (
    MEMORY_MARGIN,
    can_carry,
    carried_coefficients,
    carried_memory,
    carried_time,
    penalty_words,
)
from libra_plan.models.priors.models import Donor, PhysicsPrior, prior_for
from libra_plan.models.priors.ranks import assumed_over_ranks, memory_over_ranks, time_over_ranks
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.query import Query
from libra_plan.profiles.schema import Point, ProfileFile

__all__ = ["FittedProfile", "fit_profile"]

_ONE = Layout()
_CHUNK = 4096
"""Places per numpy call: a kernel of 4,096 × 1,000 samples takes 32 MB."""


@dataclass(frozen=True)
class FittedProfile:
    """A profile with the fitted curves of each measured layout."""

    profile: ProfileFile
    fits: tuple[LayoutFit, ...]
    prior: PhysicsPrior | None = None

    @cached_property
    def by_layout(self) -> dict[Layout, LayoutFit]:
        """The fits by layout."""
        return {fit.layout: fit for fit in self.fits}

    @cached_property
    def bounds(self) -> dict[Layout, MemoryBound]:
        """The upper bounds of memory by layout."""
        reserve = run_reserve(self.profile.hardware.gpu_class)
        return {
            fit.layout: MemoryBound(fit.memory, standing_mib(self.profile, fit.layout, fit.base_dp), reserve)
            for fit in self.fits
            if fit.memory is not None
        }

    @property
    def name(self) -> str:
        """The name of the profile in refusals."""
        return f"{self.profile.id} ({self.profile.phase} on {self.profile.hardware.gpu_class})"

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The layouts that can answer without a prior."""
        return tuple(fit.layout for fit in self.fits if fit.time is not None)

    @property
    def outside_allocator_mib(self) -> float | None:
        """MiB that a process takes beside its allocator (context, idle card); None if unmeasured."""
        known = [fit.outside_allocator_mib for fit in self.fits if fit.outside_allocator_mib is not None]
        return max(known) if known else None

    def measured_ranks(self, layout: Layout) -> set[int]:
        """Return the data-parallel sizes that were measured in a layout; one rank where none was."""
        fit = self.by_layout.get(layout)
        return {1} if fit is None else {fit.base_dp, *(other.dp for other in fit.other_ranks)}

    def assumption(self, layout: Layout) -> str:
        """Return a sentence that names the source and the penalty of an unmeasured layout."""
        experts = self.profile.model.experts is not None
        if self.prior is not None and not self.layouts:
            said = f"{layout} is assumed from other models: {', '.join(self.prior.donors)}"
            return said if layout == _ONE else f"{said}; {penalty_words(_ONE, layout, experts=experts)}"
        source = self._other_layout(layout, True, "time").layout
        return penalty_words(source, layout, experts=experts)

    # ------------------------------------------------------------ questions

    def time_s(self, query: Query, *, allow_prior: bool = False) -> Estimate:
        """Estimate the seconds of one step (decode: one token of the whole batch); see `times`."""
        return _or_raise(self.times([query], allow_prior=allow_prior)[0])

    def memory_mib(self, query: Query, *, allow_prior: bool = False) -> Estimate:
        """Estimate the peak reserved MiB per GPU; see `memories`."""
        return _or_raise(self.memories([query], allow_prior=allow_prior)[0])

    def times(self, queries: Sequence[Query], *, allow_prior: bool = False) -> list[Answer]:
        """Estimate the seconds of a step for every query, in order; a refusal is a value.

        Refused is what lies outside the measured domain by more than one octave on one axis, unless
        `allow_prior`, and always what lies at or beyond a place that ran out of memory.
        """
        return self._answer(queries, allow_prior, self._times_of_layout)

    def memories(self, queries: Sequence[Query], *, allow_prior: bool = False) -> list[Answer]:
        """Estimate the peak MiB per GPU for every query, in order; `.high` is the bound to plan with.

        Never below the smallest measured peak; at or beyond what ran out of memory it is refused. A
        serving table without memory is answered from the model's shape, and says so.
        """
        return self._answer(queries, allow_prior, self._memories_of_layout)

    def static_mib(self, layout: Layout = _ONE, *, allow_prior: bool = False) -> Estimate:
        """Estimate the MiB per GPU that stay while the role pauses with its state resident.

        `.low`: the weights alone. `.high`: the upper bound at the smallest measured peak. Between: the
        part of the fitted memory that neither batch nor length moves.
        """
        weights = weights_mib(self.profile.model, self.profile.software, layout)
        if self._engine_only(layout, allow_prior):
            return engine_static(self.profile, layout)
        fit = self.by_layout.get(layout)
        if fit is None or fit.memory is None:
            curves = [each.memory for each in self.fits if each.memory is not None]
            samples = [sample.place for curve in curves for sample in curve.samples]
            batch, length, output = min(samples, default=(1.0, 1.0, 1.0))
            whole = length + (output if self.profile.phase == "serve" else 0.0)
            least = self.memory_mib(self._query_at(batch, whole, layout), allow_prior=allow_prior)
            return replace(least, low=min(weights, least.value))
        smallest = min(fit.memory.samples, key=lambda sample: sample.value)
        low = min(weights, smallest.value)
        value = min(max(fit.memory.form.constant, low), smallest.value)
        upper = float(self.bounds[layout].at(np.array([smallest.place]))[0])
        return Estimate(value, low, upper, "MiB", Origin.INTERPOLATED, smallest.rows)

    def decode_coefficients(self, layout: Layout = _ONE, *, allow_prior: bool = False) -> DecodeCoefficients:
        """Return the affine decode step for closed-form rollout times."""
        fit = self.by_layout.get(layout)
        if fit is not None and fit.coefficients is not None:
            return fit.coefficients
        experts = self.profile.model.experts is not None
        if self._needs_physics(layout, allow_prior) and self.prior is not None:
            return carried_coefficients(self.prior.coefficients, _ONE, layout, experts=experts)
        source = self._other_layout(layout, allow_prior, "decode step").layout
        return carried_coefficients(self.decode_coefficients(source), source, layout, experts=experts)

    def max_batch(
        self, seq_len_tokens: float, memory_mib: float, layout: Layout = _ONE, *, allow_prior: bool = False
    ) -> int:
        """Find the largest batch of one length, as `max_batches` does, or refuse."""
        (found,) = self.max_batches([seq_len_tokens], memory_mib, layout, allow_prior=allow_prior)
        if isinstance(found, RefusedError):
            raise found
        return found

    def max_batches(
        self,
        lengths_tokens: Sequence[float],
        memory_mib: float,
        layout: Layout = _ONE,
        *,
        allow_prior: bool = False,
    ) -> list[int | RefusedError]:
        """Find for every length the largest batch in the domain whose memory bound fits in `memory_mib`.

        serve profiles: a length is prompt and output together, split at the least measured output.
        Refused is a length of which not even one sequence fits. All are bisected at once.
        """
        found: list[int | RefusedError] = [0] * len(lengths_tokens)
        highs = self._largest_batches(lengths_tokens, layout, allow_prior)
        low = [0] * len(highs)
        while active := [at for at, high in enumerate(highs) if isinstance(high, int) and low[at] < high]:
            middles = [(low[at] + highs[at] + 1) // 2 for at in active]  # type: ignore[operator]
            queries = [
                self._query_at(middle, lengths_tokens[at], layout)
                for at, middle in zip(active, middles, strict=True)
            ]
            answers = self.memories(queries, allow_prior=allow_prior)
            for at, middle, answer in zip(active, middles, answers, strict=True):
                if isinstance(answer, Estimate) and answer.high <= memory_mib:
                    low[at] = middle
                elif isinstance(answer, RefusedError) and middle <= 1:
                    highs[at] = answer
                else:
                    highs[at] = middle - 1
        for at, high in enumerate(highs):
            found[at] = high if isinstance(high, RefusedError) else low[at]
            if found[at] == 0:
                one = self._query_at(1.0, lengths_tokens[at], layout)
                (need,) = self.memories([one], allow_prior=allow_prior)
                found[at] = (
                    need
                    if isinstance(need, RefusedError)
                    else refusals.does_not_fit(self.name, one, memory_mib, need.high)
                )
        return found

    # ------------------------------------------------------------ inside

    def _answer(
        self,
        queries: Sequence[Query],
        allow_prior: bool,
        of_layout: Callable[[Asked], list[Answer]],
    ) -> list[Answer]:
        """Answer by layout and in pieces; what is incomplete is refused."""
        answers: dict[int, Answer] = {}
        for numbers, asked in self._by_layout(queries, allow_prior):
            answers.update(zip(numbers, of_layout(asked), strict=True))
        phase = self.profile.phase
        return [
            answers[number] if number in answers else refusals.incomplete(self.name, query, phase)
            for number, query in enumerate(queries)
        ]

    def _by_layout(self, queries: Sequence[Query], allow_prior: bool) -> Iterator[tuple[list[int], Asked]]:
        """Group complete questions, with sizes that a step may have, by layout."""
        groups: dict[Layout, tuple[list[int], list[tuple[float, float, float]]]] = {}
        for number, query in enumerate(queries):
            place = place_of(self.profile.phase, query)
            if place is not None and all(LEAST_SIZE <= part <= LARGEST_SIZE for part in place):
                numbers, rows = groups.setdefault(query.layout, ([], []))
                numbers.append(number)
                rows.append(place)
        for numbers, rows in groups.values():
            for start in range(0, len(numbers), _CHUNK):
                part = numbers[start : start + _CHUNK]
                places = np.array(rows[start : start + _CHUNK])
                yield part, Asked(self.name, [queries[number] for number in part], places, allow_prior)

    def _times_of_layout(self, asked: Asked) -> list[Answer]:
        fit = self.by_layout.get(asked.layout)
        if fit is None or fit.time is None:
            return self._times_by_prior(asked)
        answers = _with_failed(fit, asked, times_from(fit.time, asked))
        if self.profile.phase != "train":
            return answers
        below, above = fit.time.form.host_bounds(asked.places)
        at_ranks = {(other.dp, other.sample.place): other.sample for other in fit.other_ranks}
        for row, (query, place) in enumerate(zip(asked.queries, asked.places.tolist(), strict=True)):
            answer, sample = answers[row], at_ranks.get((query.dp, tuple(place)))
            if sample is not None and not _failed(fit, asked)[row]:
                answers[row] = measured_time(sample, float(below[row]), float(above[row]))
            elif isinstance(answer, Estimate) and query.dp > fit.base_dp:
                over = partial(time_over_ranks, self.profile, fit, answer, asked.only([row]))
                answers[row] = answered(over)
        return answers

    def _memories_of_layout(self, asked: Asked) -> list[Answer]:
        fit = self.by_layout.get(asked.layout)
        if self._engine_only(asked.layout, asked.allow_prior):
            rows = asked.places.tolist()
            answers: list[Answer] = [engine_memory(self.profile, asked.layout, *row) for row in rows]
            return answers if fit is None else _with_failed(fit, asked, answers)
        if fit is None or fit.memory is None:
            return self._memories_by_prior(asked, fit)
        answers = memories_from(fit.memory, self.bounds[fit.layout], asked)
        unseen = MEMORY_MARGIN if fit.memory_column == "peak_allocated_mib" else 1.0  # fragmentation
        for row, (query, answer) in enumerate(zip(asked.queries, answers, strict=True)):
            if isinstance(answer, Estimate):
                bounded = answer if unseen == 1.0 else replace(answer, high=answer.high * unseen)
                answers[row] = memory_over_ranks(self.profile, fit.layout, fit.base_dp, query.dp, bounded)
        return _with_failed(fit, asked, answers)

    def _times_by_prior(self, asked: Asked) -> list[Answer]:
        """Predict the times of a layout without own times from other models or another layout."""
        layout, source = asked.layout, _ONE
        try:
            if self._needs_physics(layout, asked.allow_prior) and self.prior is not None:
                bases: Sequence[Answer] = [
                    assumed_over_ranks(self.profile, base, asked.only([row]))
                    for row, base in enumerate(self.prior.times_s(asked.places))
                ]
            else:
                source = self._other_layout(layout, asked.allow_prior, "time").layout
                bases = self.times(_in_layout(asked.queries, source), allow_prior=True)
        except RefusedError as refusal:
            return [refusal] * len(asked.queries)
        if source == layout:
            return list(bases)
        pass_tokens = self.profile.phase in ("score", "train")
        tokens = asked.places[:, 0] * (asked.places[:, 1] if pass_tokens else 1.0)
        return [
            base
            if isinstance(base, RefusedError)
            else answered(partial(carried_time, base, self.profile, source, layout, own))
            for base, own in zip(bases, tokens.tolist(), strict=True)
        ]

    def _memories_by_prior(self, asked: Asked, fit: LayoutFit | None) -> list[Answer]:
        """Predict memory from other models, another layout or the model's shape."""
        layout, ranks = asked.layout, [query.dp for query in asked.queries]
        if self._needs_physics(layout, asked.allow_prior) and self.prior is not None:
            if self.prior.memory is not None:
                alone = self.prior.memories_mib(asked.places)
                return self._carried_memories(asked, alone, _ONE, from_one_rank=True)
        elif not any(other.memory_column for other in self.fits):
            if not asked.allow_prior:
                return [refusals.no_memory(self.name, query) for query in asked.queries]
        elif fit is None or fit.time is None:
            try:
                source = self._other_layout(layout, asked.allow_prior, "memory").layout
            except RefusedError as refusal:
                return [refusal] * len(asked.queries)
            bases = self.memories(_in_layout(asked.queries, source), allow_prior=True)
            return self._carried_memories(asked, bases, source)
        elif not asked.allow_prior:
            return [refusals.too_few(self.name, fit.layout, fit.samples, "memory")] * len(asked.queries)
        return [
            shape_memory(self.profile, layout, batch, length, dp)
            for (batch, length, _), dp in zip(asked.places.tolist(), ranks, strict=True)
        ]

    def _carried_memories(
        self, asked: Asked, bases: Sequence[Answer], source: Layout, *, from_one_rank: bool = False
    ) -> list[Answer]:
        def carried(base: Estimate, ranks: int) -> Estimate:
            if from_one_rank:
                base = memory_over_ranks(self.profile, source, 1, ranks, base)
            if source == asked.layout:
                return base
            return carried_memory(base, self.profile, source, asked.layout, ranks)

        return [
            base if isinstance(base, RefusedError) else carried(base, query.dp)
            for base, query in zip(bases, asked.queries, strict=True)
        ]

    def _engine_only(self, layout: Layout, allow_prior: bool) -> bool:
        """Whether memory is that of a serving engine of which only times were measured.

        An engine's cache grows by known bytes per token, so this needs no permission to guess; an
        unmeasured layout does.
        """
        if self.profile.phase != "serve" or any(other.memory_column for other in self.fits):
            return False
        return layout in self.layouts or allow_prior

    def _needs_physics(self, layout: Layout, allow_prior: bool) -> bool:
        """Whether nothing was fitted and a prior of other models may stand in."""
        known = layout == _ONE or can_carry(_ONE, layout, self.profile)
        return allow_prior and not self.layouts and known

    def _other_layout(self, asked: Layout, allow_prior: bool, what: str) -> LayoutFit:
        """Find the measured layout nearest in size that this one may be predicted from."""
        near = [
            each
            for each in self.fits
            if each.time is not None and can_carry(each.layout, asked, self.profile)
        ]
        if not allow_prior or not near:
            fit = self.by_layout.get(asked)
            if fit is not None:
                raise refusals.too_few(self.name, asked, fit.samples, what)
            faults = layout_faults(asked, self.profile.model)
            raise refusals.no_layout(self.name, asked, self.layouts, what, bool(near), faults)
        return min(near, key=lambda other: (octaves_between(other.layout, asked), other.layout))

    def _query_at(self, batch: float, length: float, layout: Layout) -> Query:
        if self.profile.phase != "serve":
            return Query(batch, length, layout=layout)
        curves = [fit.time for fit in self.fits if fit.time is not None]
        output = min((sample.output for curve in curves for sample in curve.samples), default=1.0)
        return Query(batch, None, max(length - output, 1.0), output, layout)

    def _largest_batches(
        self, lengths_tokens: Sequence[float], layout: Layout, allow_prior: bool
    ) -> list[int | RefusedError]:
        """Return the largest batch of the domain at every length, whatever its memory."""
        if self._needs_physics(layout, allow_prior) and self.prior is not None:
            return [int(self.prior.largest[0])] * len(lengths_tokens)
        fit = self.by_layout.get(layout)
        try:
            if fit is None or fit.time is None:
                fit = self._other_layout(layout, allow_prior, "time")
        except RefusedError as refusal:
            return [refusal] * len(lengths_tokens)
        curve = fit.time
        assert curve is not None
        found: list[int | RefusedError] = []
        (_, _), (shortest, longest) = curve.domain.box()
        for length in lengths_tokens:
            query = self._query_at(1.0, length, layout)
            place = place_of(self.profile.phase, query)
            assert place is not None
            log = float(np.log2(place[1]))
            nearest = min(max(log, shortest), longest)
            _, most = curve.domain.span(np.array([nearest]), 1)
            if abs(nearest - log) > ONE_OCTAVE and not allow_prior:
                found.append(refusals.outside(self.name, query, curve))
            else:
                found.append(1 if np.isinf(most[0]) else max(1, int(2 ** most[0] + 1e-6)))
        return found


def fit_profile(
    file: ProfileFile,
    points: Sequence[Point],
    *,
    donors: Sequence[Donor] = (),
    extra: Sequence[tuple[ProfileFile, Sequence[Point]]] = (),
) -> FittedProfile:
    """Fit every layout of a profile; a layout with fewer than six places stays without curves.

    `donors` are fitted profiles of other models; where nothing can be fitted they give the physics
    prior that answers questions with `allow_prior`. `extra` are further points of the same model,
    phase, stack and GPU class, say over data-parallel ranks; rows keep the name of their own file.
    """
    layouts = rows_by_layout(file, points, extra)
    fitted = FittedProfile(file, tuple(fit_layout(file.phase, rows) for rows in layouts))
    if fitted.layouts or not donors:
        return fitted
    own = [row for rows in layouts if rows.layout == _ONE for row in rows.base]
    return replace(fitted, prior=prior_for(file, donors, time_samples(own), memory_samples(own)[0]))


def _or_raise(answer: Answer) -> Estimate:
    if isinstance(answer, RefusedError):
        raise answer
    return answer


def _failed(fit: LayoutFit, asked: Asked) -> Flags:
    """Which questions are at or beyond a place that ran out of memory."""
    failed: Flags = np.zeros(len(asked.places), dtype=bool)
    for known in fit.failed_at:
        failed |= (asked.places >= np.asarray(known)).all(axis=1)
    return failed


def _with_failed(fit: LayoutFit, asked: Asked, answers: list[Answer]) -> list[Answer]:
    """Refuse what ran out of memory; the first of the places that did names it."""
    for row in np.flatnonzero(_failed(fit, asked)).tolist():
        known = next(each for each in fit.failed_at if (asked.places[row] >= np.asarray(each)).all())
        answers[row] = refusals.ran_out_of_memory(asked.name, asked.queries[row], known)
    return answers


def _in_layout(queries: Sequence[Query], layout: Layout) -> list[Query]:
    return [replace(query, layout=layout) for query in queries]

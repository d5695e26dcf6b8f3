"""Turn the measured points of a profile into answers with bounds, or into a refusal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from libra_plan.errors import RefusedError
from libra_plan.models import query as refusals
from libra_plan.models.costs.decode import DecodeForm, ServeForm
from libra_plan.models.costs.memory import CacheForm, ChunkForm
from libra_plan.models.curves.answers import Asked, measured_time, memory_from, nearest_rows, time_from
from libra_plan.models.curves.curve import Curve
from libra_plan.models.curves.layouts import (
    LayoutFit,
    fit_layout,
    is_size,
    memory_samples,
    place_of,
    rows_by_layout,
    time_samples,
)
from libra_plan.models.memory.bound import MemoryBound
from libra_plan.models.memory.shapes import engine_memory, engine_static, shape_memory
from libra_plan.models.memory.states import standing_mib, weights_mib
from libra_plan.models.parallelism import Layout, layout_faults, octaves_between
from libra_plan.models.priors.layouts import (
    MEMORY_MARGIN,
    Speedup,
    can_carry,
    carried_memory,
    carried_time,
    layout_speedup,
    penalty_words,
)
from libra_plan.models.priors.models import TIME_ERROR, Donor, PhysicsPrior, prior_for
from libra_plan.models.priors.ranks import assumed_over_ranks, memory_over_ranks, time_over_ranks
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.query import DecodeCoefficients, Query
from libra_plan.profiles.schema import Point, ProfileFile

__all__ = ["DecodeCoefficients", "FittedProfile", "Query", "fit_profile"]

_ONE = Layout()


@dataclass(frozen=True)
class FittedProfile:
    """A profile with the fitted curves of each measured layout."""

    profile: ProfileFile
    fits: tuple[LayoutFit, ...]
    prior: PhysicsPrior | None = None

    @cached_property
    def by_layout(self) -> dict[Layout, LayoutFit]:
        """Map fits by layout."""
        return {fit.layout: fit for fit in self.fits}

    @cached_property
    def bounds(self) -> dict[Layout, MemoryBound]:
        """Map the upper bounds of memory by layout."""
        return {
            fit.layout: MemoryBound(fit.memory, standing_mib(self.profile, fit.layout, fit.base_dp))
            for fit in self.fits
            if fit.memory is not None
        }

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """List the layouts that can answer without a prior."""
        return tuple(fit.layout for fit in self.fits if fit.time is not None)

    @property
    def outside_allocator_mib(self) -> float | None:
        """Give the MiB a process takes beside its allocator (context, idle card); None if unmeasured."""
        known = [fit.outside_allocator_mib for fit in self.fits if fit.outside_allocator_mib is not None]
        return max(known) if known else None

    def measured_ranks(self, layout: Layout) -> set[int]:
        """Give the data-parallel sizes that were measured in a layout; one rank where none was."""
        fit = self.by_layout.get(layout)
        return {1} if fit is None else {fit.base_dp, *(other.dp for other in fit.other_ranks)}

    def assumption(self, layout: Layout) -> str:
        """Say what a layout that was not measured is predicted from, and by which penalty."""
        experts = self.profile.model.experts is not None
        if self.prior is not None and not self.layouts:
            said = f"{layout} is assumed from other models: {', '.join(self.prior.donors)}"
            return said if layout == _ONE else f"{said}; {penalty_words(_ONE, layout, experts=experts)}"
        source = self._other_layout(layout, True, "time", self.by_layout.get(layout)).layout
        return penalty_words(source, layout, experts=experts)

    def time_s(self, query: Query, *, allow_prior: bool = False) -> Estimate:
        """Estimate the seconds of one step (decode: one token of the whole batch).

        Refuses outside the measured domain by more than one octave on one axis, unless
        `allow_prior`; at or beyond what ran out of memory always.
        """
        asked = self._ask(query, allow_prior)
        fit = self.by_layout.get(query.layout)
        if fit is None or fit.time is None:
            return self._time_by_prior(asked)
        _refuse_failed(fit, asked)
        for other in fit.other_ranks:
            if other.dp == query.dp and other.sample.place == asked.place:
                return measured_time(fit.time, other.sample)
        return time_over_ranks(self.profile, fit, time_from(fit.time, asked), asked)

    def memory_mib(self, query: Query, *, allow_prior: bool = False) -> Estimate:
        """Estimate the peak reserved MiB per GPU; `.high` is the bound to plan with.

        Never below the smallest measured peak; at or beyond what ran out of memory it refuses. A
        serving table without memory is answered from the model's shape, and says so.
        """
        asked = self._ask(query, allow_prior)
        fit = self.by_layout.get(query.layout)
        if self._engine_only(query.layout, allow_prior):
            if fit is not None:
                _refuse_failed(fit, asked)
            return engine_memory(self.profile, query.layout, *asked.place)
        if fit is None or fit.memory is None:
            return self._memory_by_prior(asked, fit)
        _refuse_failed(fit, asked)
        estimate = memory_from(fit.memory, self.bounds[fit.layout], asked)
        if fit.memory_column == "peak_allocated_mib":  # fragmentation was not seen
            estimate = replace(estimate, high=estimate.high * MEMORY_MARGIN)
        return memory_over_ranks(self.profile, fit.layout, fit.base_dp, query.dp, estimate)

    def static_mib(self, layout: Layout = _ONE, *, allow_prior: bool = False) -> Estimate:
        """Estimate the MiB per GPU that stay while the role pauses with its state resident.

        `.low`: the weights alone. `.high`: the upper bound at the smallest measured peak. Between: the
        part of the fitted memory that neither batch nor length moves.
        """
        weights = weights_mib(self.profile.model, self.profile.software, layout)
        fit = self.by_layout.get(layout)
        if self._engine_only(layout, allow_prior):
            return engine_static(self.profile, layout)
        if fit is None or fit.memory is None:
            asked = self._ask(self._least_query(layout), allow_prior)
            least = self._memory_by_prior(asked, fit)
            return replace(least, low=min(weights, least.value))
        curve = fit.memory
        smallest = min(curve.samples, key=lambda sample: sample.value)
        fixed = curve.form.fixed_mib if isinstance(curve.form, CacheForm | ChunkForm) else smallest.value
        low = min(weights, smallest.value)
        value = min(max(fixed, low), smallest.value)
        rows = nearest_rows(curve, smallest.place)
        upper = float(self.bounds[layout].at([smallest.place])[0])
        return Estimate(value, low, upper, "MiB", Origin.INTERPOLATED, rows)

    def decode_coefficients(self, layout: Layout = _ONE, *, allow_prior: bool = False) -> DecodeCoefficients:
        """Give the affine decode step for closed-form rollout times."""
        fit = self.by_layout.get(layout)
        if fit is not None and fit.affine is not None:
            form = fit.affine
            return DecodeCoefficients(form.fixed_s, form.per_sequence_s, form.per_token_s, fit.affine_error)
        if fit is not None and fit.time is not None and isinstance(fit.time.form, ServeForm):
            return _serve_coefficients(fit.time, fit.time.form)
        if self._needs_physics(layout, allow_prior) and self.prior is not None:
            return _prior_coefficients(self.prior, layout)
        source = self._other_layout(layout, allow_prior, "decode step", fit).layout
        return _faster(self.decode_coefficients(source), self._speedup(source, layout))

    def max_batch(
        self, seq_len_tokens: float, memory_mib: float, layout: Layout = _ONE, *, allow_prior: bool = False
    ) -> int:
        """Find the largest whole batch in the domain whose memory bound fits in `memory_mib`.

        serve profiles: `seq_len_tokens` is prompt and output together, split at the least measured
        output. Refuses when not even one sequence fits.
        """
        low, high = 0, self._largest_batch(self._query_at(1.0, seq_len_tokens, layout), allow_prior)
        while low < high:
            middle = (low + high + 1) // 2
            if self._fits(self._query_at(middle, seq_len_tokens, layout), memory_mib, allow_prior):
                low = middle
            else:
                high = middle - 1
        if low == 0:
            one = self._query_at(1.0, seq_len_tokens, layout)
            need = self.memory_mib(one, allow_prior=allow_prior).high
            raise refusals.does_not_fit(self.name, one, memory_mib, need)
        return low

    # ------------------------------------------------------------ inside

    @property
    def name(self) -> str:
        """Give the words that refusals call the profile by."""
        return f"{self.profile.id} ({self.profile.phase} on {self.profile.hardware.gpu_class})"

    def _ask(self, query: Query, allow_prior: bool) -> Asked:
        phase = self.profile.phase
        place = place_of(
            phase, query.batch_sequences, query.seq_len_tokens, query.prompt_tokens, query.output_tokens
        )
        if place is None or not is_size(place):
            raise refusals.incomplete(self.name, query, phase)
        return Asked(self.name, query, place, allow_prior)

    def _time_by_prior(self, asked: Asked) -> Estimate:
        source = self.time_source(asked.query.layout, allow_prior=asked.allow_prior)
        if source is not None:
            base = self.time_s(_with_layout(asked.query, source), allow_prior=True)
        else:
            assert self.prior is not None
            base = self.prior.time_s(asked.place)
        return self.carried_time_s(base, asked, source)

    def time_source(self, layout: Layout, *, allow_prior: bool) -> Layout | None:
        """Name the measured layout that one without times is carried from; None: other models' prior."""
        if self._needs_physics(layout, allow_prior) and self.prior is not None:
            return None
        return self._other_layout(layout, allow_prior, "time", self.by_layout.get(layout)).layout

    def carried_time_s(self, base: Estimate, asked: Asked, source: Layout | None) -> Estimate:
        """Carry a step's seconds in `source` (None: the prior's, on one GPU) over to the layout asked for."""
        layout = asked.query.layout
        if source is None:
            base, source = assumed_over_ranks(self.profile, base, asked), _ONE
        if source == layout:
            return base
        tokens = asked.place[0] * (asked.place[1] if self.profile.phase in ("score", "train") else 1.0)
        return carried_time(base, self.profile, source, layout, tokens)

    def memory_source(self, layout: Layout) -> Layout | None:
        """Name the layout whose memory one without is carried from, priors allowed; None: the shape's."""
        fit = self.by_layout.get(layout)
        if self._engine_only(layout, True):
            return None
        if self._needs_physics(layout, True) and self.prior is not None:
            return None if self.prior.memory is None else _ONE
        if (fit is not None and fit.time is not None) or not any(each.memory_column for each in self.fits):
            return None
        try:
            return self._other_layout(layout, True, "memory", fit).layout
        except RefusedError:
            return None

    def _memory_by_prior(self, asked: Asked, fit: LayoutFit | None) -> Estimate:
        layout, ranks = asked.query.layout, asked.query.dp
        if self._needs_physics(layout, asked.allow_prior) and self.prior is not None:
            if self.prior.memory is not None:
                return self.carried_memory_mib(self.prior.memory_mib(asked.place), asked, None)
        elif not any(other.memory_column for other in self.fits):
            if not asked.allow_prior:
                raise refusals.no_memory(self.name, asked.query)
        elif fit is None or fit.time is None:
            source = self._other_layout(layout, asked.allow_prior, "memory", fit).layout
            base = self.memory_mib(_with_layout(asked.query, source), allow_prior=True)
            return self.carried_memory_mib(base, asked, source)
        elif not asked.allow_prior:
            raise refusals.too_few(self.name, fit.layout, fit.samples, "memory")
        return shape_memory(self.profile, layout, asked.place[0], asked.place[1], ranks)

    def carried_memory_mib(self, base: Estimate, asked: Asked, source: Layout | None) -> Estimate:
        """Carry a peak in `source` (None: the prior's, on one GPU) over to the layout asked for."""
        layout, ranks = asked.query.layout, asked.query.dp
        if source is None:
            base, source = memory_over_ranks(self.profile, _ONE, 1, ranks, base), _ONE
        return base if source == layout else carried_memory(base, self.profile, source, layout, ranks)

    def _engine_only(self, layout: Layout, allow_prior: bool) -> bool:
        """Tell whether memory is that of a serving engine of which only times were measured.

        An engine's cache grows by known bytes per token, so this needs no permission to guess; an
        unmeasured layout does.
        """
        if self.profile.phase != "serve" or any(other.memory_column for other in self.fits):
            return False
        return layout in self.layouts or allow_prior

    def _needs_physics(self, layout: Layout, allow_prior: bool) -> bool:
        """Tell whether nothing was fitted and a prior of other models may stand in."""
        known = layout == _ONE or can_carry(_ONE, layout, self.profile)
        return allow_prior and not self.layouts and known

    def _other_layout(self, asked: Layout, allow_prior: bool, what: str, fit: LayoutFit | None) -> LayoutFit:
        """Find the measured layout nearest in size that this one may be predicted from."""
        near = [
            each
            for each in self.fits
            if each.time is not None and can_carry(each.layout, asked, self.profile)
        ]
        if not allow_prior or not near:
            if fit is not None:
                raise refusals.too_few(self.name, asked, fit.samples, what)
            faults = layout_faults(asked, self.profile.model)
            raise refusals.no_layout(self.name, asked, self.layouts, what, bool(near), faults)
        return min(near, key=lambda other: (octaves_between(other.layout, asked), other.layout))

    def _speedup(self, source: Layout, asked: Layout) -> Speedup:
        return layout_speedup(source, asked, experts=self.profile.model.experts is not None)

    def _least_query(self, layout: Layout) -> Query:
        curves = [fit.memory for fit in self.fits if fit.memory is not None]
        batch, length, output = min(
            (sample.place for curve in curves for sample in curve.samples), default=(1.0, 1.0, 1.0)
        )
        return self._query_at(batch, length + (output if self.profile.phase == "serve" else 0.0), layout)

    def _query_at(self, batch: float, length: float, layout: Layout) -> Query:
        parallel = {"tp": layout.tp, "pp": layout.pp, "cp": layout.cp, "ep": layout.ep}
        if self.profile.phase != "serve":
            return Query(batch, length, **parallel)
        curves = [fit.time for fit in self.fits if fit.time is not None]
        output = min((sample.output for curve in curves for sample in curve.samples), default=1.0)
        return Query(batch, None, max(length - output, 1.0), output, **parallel)

    def _largest_batch(self, query: Query, allow_prior: bool) -> int:
        fit = self.by_layout.get(query.layout)
        if self._needs_physics(query.layout, allow_prior) and self.prior is not None:
            return int(self.prior.largest[0])
        if fit is None or fit.time is None:
            fit = self._other_layout(query.layout, allow_prior, "time", fit)
        curve = fit.time
        asked = self._ask(query, allow_prior)
        if curve is None:
            raise refusals.too_few(self.name, query.layout, fit.samples, "time")
        length = math.log2(asked.place[1])
        (_, _), (shortest, longest) = curve.domain.box()
        nearest = min(max(length, shortest), longest)
        if abs(nearest - length) > 1 + 1e-9 and not allow_prior:
            raise refusals.outside(self.name, query, curve)
        span = curve.domain.span(nearest, 1)
        return 1 if span is None else max(1, math.floor(2 ** span[1] + 1e-6))

    def _fits(self, query: Query, memory_mib: float, allow_prior: bool) -> bool:
        try:
            return self.memory_mib(query, allow_prior=allow_prior).high <= memory_mib
        except RefusedError:
            if query.batch_sequences <= 1:
                raise
            return False


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


def _refuse_failed(fit: LayoutFit, asked: Asked) -> None:
    for failed in fit.failed_at:
        if all(part >= known for part, known in zip(asked.place, failed, strict=True)):
            raise refusals.ran_out_of_memory(asked.name, asked.query, failed)


def _serve_coefficients(curve: Curve, form: ServeForm) -> DecodeCoefficients:
    """Fold √B into the affine part so that it is exact at the least and the largest concurrency."""
    batches = [sample.batch for sample in curve.samples]
    low, high = math.sqrt(min(batches)), math.sqrt(max(batches))
    slope = form.per_root_sequence_s / (low + high)
    fixed = form.fixed_s + form.per_root_sequence_s * low * high / (low + high)
    error = math.exp(curve.inside_high) - 1
    return DecodeCoefficients(fixed, form.per_sequence_s + slope, form.per_token_s, error, form.per_prefill_s)


def _prior_coefficients(prior: PhysicsPrior, layout: Layout) -> DecodeCoefficients:
    form, scale = prior.time, prior.time_scale
    if not isinstance(form, DecodeForm):
        raise TypeError(f"a decode step is fitted with a decode form, not {form}")
    root = math.sqrt(prior.largest[0])
    slope, fixed = form.per_root_sequence_s / (1 + root), form.per_root_sequence_s * root / (1 + root)
    base = DecodeCoefficients(
        (form.fixed_s + fixed) * scale,
        (form.per_sequence_s + slope) * scale,
        form.per_token_s * scale,
        math.expm1(TIME_ERROR),
    )
    experts = prior.profile.model.experts is not None
    return _faster(base, layout_speedup(_ONE, layout, experts=experts))


def _faster(base: DecodeCoefficients, speed: Speedup) -> DecodeCoefficients:
    return DecodeCoefficients(
        base.fixed_s / speed.likely,
        base.per_sequence_s / speed.likely,
        base.per_token_s / speed.likely,
        (1 + base.error) * speed.likely / speed.least - 1,
        base.per_prefill_s / speed.likely,
    )


def _with_layout(query: Query, layout: Layout) -> Query:
    return replace(query, tp=layout.tp, pp=layout.pp, cp=layout.cp, ep=layout.ep)

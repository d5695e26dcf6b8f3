"""Rollout as a stage: generation over the trajectories of a step, limited by slots and KV memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.fit import FittedProfile
from libra_plan.models.lengths import FloatArray, IntArray, LengthSample
from libra_plan.models.memory.shapes import cache_share
from libra_plan.models.parallelism import Layout
from libra_plan.models.pricing.layout import Pricer, RoleStage, shortest_tokens
from libra_plan.models.pricing.passes import StageCost, prefill_s_per_token
from libra_plan.models.quantities import Estimate, Origin, weakest
from libra_plan.models.query import Query
from libra_plan.models.rollout.admission import Admission, Frontier, frontier_of
from libra_plan.models.rollout.luck import Luck, luck_of
from libra_plan.models.rollout.makespan import Trajectories, makespan_s
from libra_plan.models.rollout.mixed import ReplicaKind
from libra_plan.models.rollout.streaming import Stream, continuous_s, stream_of
from libra_plan.models.stage_option import Coupling, CouplingKind
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.schema import RoleSpec

__all__ = ["RangedKind", "Rollout"]

MEMORY_ASSUMED = "memory is assumed from the model's shape: none was measured"


_SHORTER = (0.02, 0.1, 0.25, 0.5)
"""Shares of the longest trajectories that a small replica may leave to larger ones."""


@dataclass(frozen=True)
class RangedKind:
    """A kind of replica that serves ranks of lengths, with its peak memory and remarks.

    `band` is the relative error of its times.
    """

    kind: ReplicaKind
    memory_mib: Estimate
    band: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Rollout(RoleStage):
    """A role that generates, on replicas of one layout or (`ranged`) of several."""

    profile: FittedProfile
    loaded: LoadedProfile
    prefill: FittedProfile | None
    prefill_shortest: float
    prefill_batch: float
    orders: tuple[Trajectories, ...]
    role: RoleSpec
    coupling: Coupling
    drawn: Trajectories | None = None
    notes: tuple[str, ...] = ()

    def ways(self) -> tuple[tuple[RoleStage, bool], ...]:
        """List rollouts that never drain, or, in turns with other roles, end with every step."""
        if not self.coupling.streams:
            return ((self, False),)
        return ((self, True), (replace(self, coupling=Coupling(CouplingKind.SYNC)), False))

    def ranged(self, layout: Layout, memory_mib: float, allow_prior: bool) -> RangedKind:
        """Time replicas of a layout that serve trajectories by rank: all of them, or those that fit.

        A small replica may hold no context as long as the longest; it then serves shorter ones.
        """
        coefficients = self.profile.decode_coefficients(layout, allow_prior=allow_prior)
        contexts = np.sort(self.orders[0].final_context)[::-1]
        frontier = self._frontier_of_part(contexts, layout, memory_mib, allow_prior)
        admission = frontier.admission(len(contexts), self.role.max_concurrency)
        per_token, notes = self._prefill(layout, allow_prior)
        prefill = None if per_token is None else self._prefilled_tokens(self.orders[0]) * per_token.value
        fitting = contexts[contexts <= admission.tokens]
        memory = self._memory(frontier, admission, fitting, layout, allow_prior)
        origin = Origin.INTERPOLATED if layout in self.profile.layouts else Origin.ASSUMED
        band = max(coefficients.error, 0.0 if per_token is None else per_token.high / per_token.value - 1.0)
        kind = ReplicaKind(layout, coefficients, admission, prefill, origin)
        return RangedKind(kind, memory, band, (admission.reason, *notes))

    def _frontier_of_part(
        self, contexts: IntArray, layout: Layout, memory_mib: float, allow_prior: bool
    ) -> Frontier:
        """Find the largest batches up to the longest context that fits, of a few quantiles tried."""
        shortest = shortest_tokens(self.loaded.points)
        for share in (0.0, *_SHORTER):
            try:
                return frontier_of(
                    self.profile,
                    layout,
                    memory_mib=memory_mib,
                    shortest_context=max(float(contexts[-1]), shortest),
                    longest_context=max(float(contexts[int(share * (len(contexts) - 1))]), shortest),
                    allow_prior=allow_prior,
                )
            except RefusedError:
                if share == _SHORTER[-1]:
                    raise
        raise AssertionError("the last quantile either fits or is refused")

    def prepare(self, layout: Layout, memory_mib: float, allow_prior: bool) -> Pricer:
        """Time a decode step, find the largest batches that fit, and the luck of lengths."""
        coefficients = self.profile.decode_coefficients(layout, allow_prior=allow_prior)
        serves = self.loaded.file.phase == "serve"
        if serves:
            file, static = self.loaded.file, self.profile.static_mib(layout, allow_prior=allow_prior)
            memory_mib = min(memory_mib, cache_share(file.software, file.hardware.memory_mib, static.value))
        shortest = shortest_tokens(self.loaded.points)
        contexts = np.sort(np.max([np.sort(order.final_context) for order in self.orders], axis=0))[::-1]
        frontier = frontier_of(
            self.profile,
            layout,
            memory_mib=memory_mib,
            shortest_context=max(float(contexts[-1]), shortest),
            longest_context=max(float(contexts[0]), shortest),
            allow_prior=allow_prior,
        )
        per_token, notes = self._prefill(layout, allow_prior)
        origin = Origin.INTERPOLATED if layout in self.profile.layouts else Origin.ASSUMED
        if float(self.orders[0].prompt_tokens.min()) < shortest / 2:
            origin = weakest(origin, Origin.EXTRAPOLATED)
            notes = (*notes, f"contexts below {shortest:.0f} tokens were not measured")
        luck = self._luck(coefficients, per_token)
        band = coefficients.error
        if per_token is not None:
            band = max(band, per_token.high / per_token.value - 1.0)

        def price(replicas: int) -> StageCost:
            steps = 1 + self.coupling.staleness if self.coupling.streams else 1
            admission = frontier.admission(
                -(-len(self.orders[0]) // replicas) * steps, self.role.max_concurrency
            )
            found = [
                self._seconds(order, coefficients, admission, replicas, per_token) for order in self.orders
            ]
            served = self._served(admission, layout, allow_prior) if serves else None
            error = band if served is None else max(band, served.high / served.value - 1.0)
            low, high = min(found) * max(1 - error, 0.0), max(found) * (1 + error)
            asked = origin if served is None else weakest(origin, served.origin)
            time = Estimate(sum(found) / len(found), low, high, "s", asked)
            memory = self._memory(frontier, admission, contexts, layout, allow_prior)
            guessed = () if memory.origin is not Origin.ASSUMED else (MEMORY_ASSUMED,)
            lucky = self._lucky(luck, time.value, admission, replicas)
            stream = self._stream(coefficients, replicas, per_token) if self.coupling.streams else None
            said = (admission.reason, *notes, *guessed, *lucky)
            return StageCost(time, memory, said, stream=stream)

        return price

    def _luck(self, coefficients: DecodeCoefficients, per_token: Estimate | None) -> Luck | None:
        if self.drawn is None:
            return None
        if per_token is None:
            return luck_of(self.orders, self.drawn, coefficients)
        rate = per_token.value
        return luck_of(
            self.orders, self.drawn, coefficients, lambda work: self._prefilled_tokens(work) * rate
        )

    def _lucky(self, luck: Luck | None, value: float, admission: Admission, replicas: int) -> tuple[str, ...]:
        """Return a note on the step over resampled lengths: its median, and the worst of 20."""
        if luck is None:
            return ()
        if self.coupling.streams:
            median, high = luck.steady(admission, replicas)
        else:
            median, high = luck.makespan(admission, replicas)
        return (
            f"p95 of the step over resampled lengths: {high * value:.1f} s (median {median * value:.1f} s)",
        )

    def _served(self, admission: Admission, layout: Layout, allow_prior: bool) -> Estimate:
        """Query a serving table at this work's mean lengths; it refuses lengths too far from its rows."""
        order = self.orders[0]
        prompt, output = float(order.prompt_tokens.mean()), float(order.response_tokens.mean())
        query = Query(float(admission.sequences), None, prompt, output, layout)
        return self.profile.time_s(query, allow_prior=allow_prior)

    def _seconds(
        self,
        order: Trajectories,
        coefficients: DecodeCoefficients,
        admission: Admission,
        replicas: int,
        per_token: Estimate | None,
    ) -> float:
        prefill = None if per_token is None else self._prefilled_tokens(order) * per_token.value
        if not self.coupling.streams:
            return makespan_s(order, coefficients, admission, replicas, prefill)
        return continuous_s(order, coefficients, admission, replicas, _whole(prefill))

    def _stream(self, coefficients: DecodeCoefficients, replicas: int, per_token: Estimate | None) -> Stream:
        """Return its work and latency, as a mean over the orders."""
        prefills = [
            None if per_token is None else self._prefilled_tokens(order) * per_token.value
            for order in self.orders
        ]
        parts = [
            stream_of(order, coefficients, replicas, _whole(prefill))
            for order, prefill in zip(self.orders, prefills, strict=True)
        ]
        return Stream(
            sum(each.work_s for each in parts) / len(parts),
            sum(each.latency_s for each in parts) / len(parts),
        )

    @property
    def _keeps_prefixes(self) -> bool:
        return self.loaded.file.software.flags.get("prefix_caching") is True

    def _prefilled_tokens(self, order: Trajectories) -> FloatArray:
        """Return the tokens prefilled per trajectory: the prompt, or every turn's prefix without a cache."""
        return order.prompt_tokens.astype(float) if self._keeps_prefixes else order.prefix_tokens

    def _prefill(self, layout: Layout, allow_prior: bool) -> tuple[Estimate | None, tuple[str, ...]]:
        """Estimate seconds per prefilled token; None when it is in the decode profile or unknown."""
        if self.loaded.file.phase == "serve":
            return None, ("prefill is part of the serving profile",)
        if self.prefill is None:
            return None, ("prefill is not in the time: the role names no score profile",)
        order = self.orders[0]
        passes = 1 if self._keeps_prefixes else order.turns
        prefixes = np.sort(np.maximum(self._prefilled_tokens(order) / passes, 1.0).astype(np.int64))
        seconds = prefill_s_per_token(
            self.prefill,
            LengthSample(prefixes),
            self.prefill_batch,
            layout=layout,
            shortest_tokens=self.prefill_shortest,
            allow_prior=allow_prior,
        )
        return seconds, (f"every one of {passes} turns prefills its prefix anew",) if passes > 1 else ()

    def _memory(
        self,
        frontier: Frontier,
        admission: Admission,
        contexts: IntArray,
        layout: Layout,
        allow_prior: bool,
    ) -> Estimate:
        """Estimate the peak with every slot taken by the longest trajectories that fit."""
        slots = admission.sequences
        tokens = min(admission.tokens, float(contexts[:slots].sum()))
        fitting = [c for c, b in zip(frontier.contexts, frontier.batches, strict=True) if b >= slots]
        context = max(tokens / slots, fitting[0])
        query = Query(float(slots), context, layout=layout)
        if self.loaded.file.phase == "serve":
            order = self.orders[0]
            prompt = context * float(order.prompt_tokens.sum() / order.final_context.sum())
            query = replace(query, seq_len_tokens=None, prompt_tokens=prompt, output_tokens=context - prompt)
        return self.profile.memory_mib(query, allow_prior=allow_prior)


def _whole(prefill_s: FloatArray | None) -> float:
    return 0.0 if prefill_s is None else float(prefill_s.sum())

"""The three kinds of stage a role can be, each turned into a price per layout and replica count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models.admission import Admission, Frontier, frontier_of
from libra_plan.models.engine_memory import cache_share
from libra_plan.models.fit import DecodeCoefficients, FittedProfile, Query
from libra_plan.models.lengths import FloatArray, IntArray, LengthSample
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.rollout import Trajectories, continuous_s, makespan_s
from libra_plan.models.scoring_stage import prefill_s_per_token, scoring_cost
from libra_plan.models.topology import Cluster
from libra_plan.models.training_stage import StageCost, training_cost
from libra_plan.planner.pricing.replicas import largest_node
from libra_plan.planner.pricing.switching import link_gib_per_s
from libra_plan.planner.pricing.work import TaskWork
from libra_plan.planner.problem import Coupling, CouplingKind
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.schema import Point, RoleSpec

__all__ = ["Pricer", "Stage", "stage_of"]

Pricer = Callable[[int], StageCost]
"""Price a replica count."""

MEMORY_ASSUMED = "memory is assumed from the model's shape: none was measured"
TRAINING = ("actor_train", "critic_train", "reward_train")


class Stage(ABC):
    """A role's kind of work with the profile that times it."""

    profile: FittedProfile

    @abstractmethod
    def prepare(self, layout: Layout, memory_mib: float, allow_prior: bool) -> Pricer:
        """Do once what all replica counts of a layout share; `memory_mib` is what the role may reserve."""


def stage_of(
    role: RoleSpec,
    names: Iterable[str],
    work: TaskWork,
    coupling: Coupling,
    profiles: Mapping[str, LoadedProfile],
    fitted: Callable[[str], FittedProfile],
    cluster: Cluster,
) -> Stage:
    """Make the stage of a role from its profiles of one GPU class."""
    of_phase: dict[str, str] = {}
    for name in names:
        of_phase.setdefault(profiles[name].file.phase, name)
    writes = role.id in work.verdicts  # a judge that answers in words
    if role.kind == "rollout" or writes:
        decode = of_phase.get("decode") or of_phase.get("serve")
        orders = work.verdicts[role.id] if writes else work.orders
        if decode is None or not orders:
            raise RefusedError(f"a {role.kind} role needs a decode or serve profile", got=", ".join(of_phase))
        score = of_phase.get("score")
        prefill = fitted(score) if score is not None else None
        shortest = 1.0 if score is None else _shortest(profiles[score].points)
        batch = 0.0 if score is None else _batch_tokens(profiles[score].points)
        return _Rollout(fitted(decode), profiles[decode], prefill, shortest, batch, orders, role, coupling)
    phase = "train" if role.kind in TRAINING else "score"
    timed_by = of_phase.get(phase)
    if timed_by is None:
        raise RefusedError(
            f"a {role.kind} role is priced from a {phase} profile",
            got=", ".join(of_phase),
            way_out=f"name a {phase} profile of this GPU class",
        )
    if phase == "train":
        return _Training(fitted(timed_by), profiles[timed_by], work, role, cluster)
    return _Scoring(fitted(timed_by), profiles[timed_by], work, role)


# ---------------------------------------------------------------- train and score


def _shortest(points: Iterable[Point]) -> float:
    """Give the shortest length measured, tokens."""
    return float(min((p.seq_len_tokens for p in points if p.status == "ok" and p.seq_len_tokens), default=1))


def _batch_tokens(points: Iterable[Point]) -> float:
    """Give the tokens of the largest batch measured at the shortest length: a full micro-batch."""
    measured = [p for p in points if p.status == "ok" and p.seq_len_tokens is not None]
    shortest = _shortest(measured)
    sizes = [p.batch_sequences * shortest for p in measured if p.seq_len_tokens == shortest]
    return max(sizes, default=1.0)


def _budget(role: RoleSpec, points: Iterable[Point], work: TaskWork, layout: Layout) -> int:
    """Give the tokens a replica takes at once: the user's, times context-parallel ranks, or measured.

    Unstated, it is the largest batch measured at the shortest length, or the longest sequence.
    """
    if role.micro_batch_tokens is not None:
        return role.micro_batch_tokens * layout.cp
    return max(int(_batch_tokens(points)), work.sequences.longest)


@dataclass(frozen=True)
class _Training(Stage):
    profile: FittedProfile
    loaded: LoadedProfile
    work: TaskWork
    role: RoleSpec
    cluster: Cluster

    def prepare(self, layout: Layout, memory_mib: float, allow_prior: bool) -> Pricer:
        budget = _budget(self.role, self.loaded.points, self.work, layout)
        shortest = _shortest(self.loaded.points)
        node_gpus = largest_node(self.cluster, self.loaded.file.hardware.gpu_class)
        divides = bool(self.loaded.file.software.flags.get("samples_divide_by_dp", False))

        def price(replicas: int) -> StageCost:
            if divides and self.work.samples % replicas:
                raise RefusedError(
                    "the framework needs samples divided evenly",
                    got=f"{self.work.samples} samples for {replicas} replicas",
                )
            one_node = replicas * layout.gpus_per_replica <= node_gpus
            link = link_gib_per_s(self.cluster, self.loaded, one_node)
            if link is None and not one_node:
                raise RefusedError(
                    "the bandwidth between nodes is unknown, and training would span them",
                    got=f"{replicas * layout.gpus_per_replica} GPUs",
                    allowed=f"at most the {node_gpus} of one node",
                    way_out="give inter_node_gib_per_s in the cluster file",
                )
            return training_cost(
                self.profile,
                self.work.sequences,
                budget,
                replicas,
                layout=layout,
                link_gib_per_s=link,
                shortest_tokens=shortest,
                allow_prior=allow_prior,
            )

        return price


@dataclass(frozen=True)
class _Scoring(Stage):
    profile: FittedProfile
    loaded: LoadedProfile
    work: TaskWork
    role: RoleSpec

    def prepare(self, layout: Layout, memory_mib: float, allow_prior: bool) -> Pricer:
        budget = _budget(self.role, self.loaded.points, self.work, layout)
        shortest = _shortest(self.loaded.points)
        return lambda replicas: scoring_cost(
            self.profile,
            self.work.sequences,
            budget,
            replicas,
            layout=layout,
            shortest_tokens=shortest,
            allow_prior=allow_prior,
        )


# ---------------------------------------------------------------- rollout


@dataclass(frozen=True)
class _Rollout(Stage):
    profile: FittedProfile
    loaded: LoadedProfile
    prefill: FittedProfile | None
    prefill_shortest: float
    prefill_batch: float
    orders: tuple[Trajectories, ...]
    role: RoleSpec
    coupling: Coupling

    def prepare(self, layout: Layout, memory_mib: float, allow_prior: bool) -> Pricer:
        coefficients = self.profile.decode_coefficients(layout, allow_prior=allow_prior)
        serves = self.loaded.file.phase == "serve"
        if serves:
            file, static = self.loaded.file, self.profile.static_mib(layout, allow_prior=allow_prior)
            memory_mib = min(memory_mib, cache_share(file.software, file.hardware.memory_mib, static.value))
        shortest = _shortest(self.loaded.points)
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
            origin = max(origin, Origin.EXTRAPOLATED, key=lambda each: each.weakness)
            notes = (*notes, f"contexts below {shortest:.0f} tokens were not measured")
        band = coefficients.error
        if per_token is not None:
            band = max(band, per_token.high / per_token.value - 1.0)

        def price(replicas: int) -> StageCost:
            share = -(-len(self.orders[0]) // replicas) * (1 + self.coupling.staleness)
            admission = frontier.admission(share, self.role.max_concurrency)
            found = [
                self._seconds(order, coefficients, admission, replicas, per_token) for order in self.orders
            ]
            served = self._served(admission, layout, allow_prior) if serves else None
            error = band if served is None else max(band, served.high / served.value - 1.0)
            low, high = min(found) * max(1 - error, 0.0), max(found) * (1 + error)
            weakest = origin if served is None else max(origin, served.origin, key=lambda each: each.weakness)
            time = Estimate(sum(found) / len(found), low, high, "s", weakest)
            memory = self._memory(frontier, admission, contexts, layout, allow_prior)
            guessed = () if memory.origin is not Origin.ASSUMED else (MEMORY_ASSUMED,)
            return StageCost(time, memory, (admission.reason, *notes, *guessed))

        return price

    def _served(self, admission: Admission, layout: Layout, allow_prior: bool) -> Estimate:
        """Ask a serving table at this work's mean lengths: it refuses what is too far from its rows."""
        order = self.orders[0]
        prompt, output = float(order.prompt_tokens.mean()), float(order.response_tokens.mean())
        query = Query(
            float(admission.sequences), None, prompt, output, layout.tp, layout.pp, layout.cp, layout.ep
        )
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
        if self.coupling.kind is not CouplingKind.ASYNC:
            return makespan_s(order, coefficients, admission, replicas, prefill)
        whole = 0.0 if prefill is None else float(prefill.sum())
        return continuous_s(order, coefficients, admission, replicas, self.coupling.staleness, whole)

    @property
    def _keeps_prefixes(self) -> bool:
        return self.loaded.file.software.flags.get("prefix_caching") is True

    def _prefilled_tokens(self, order: Trajectories) -> FloatArray:
        """Give the tokens prefilled per trajectory: the prompt, or every turn's prefix without a cache."""
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
        query = Query(float(slots), context, tp=layout.tp, pp=layout.pp, cp=layout.cp, ep=layout.ep)
        if self.loaded.file.phase == "serve":
            order = self.orders[0]
            prompt = context * float(order.prompt_tokens.sum() / order.final_context.sum())
            query = replace(query, seq_len_tokens=None, prompt_tokens=prompt, output_tokens=context - prompt)
        return self.profile.memory_mib(query, allow_prior=allow_prior)

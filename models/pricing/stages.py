"""The three kinds of stage a role can be, each turned into a price per layout and replica count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from libra_plan.errors import RefusedError
from libra_plan.models.fit import FittedProfile
from libra_plan.models.fits import JoinedProfile, by_phase
from libra_plan.models.parallelism import Layout
from libra_plan.models.pricing.layout import (
    PriceInputs,
    Pricer,
    RoleStage,
    batch_tokens,
    largest_node,
    shortest_tokens,
)
from libra_plan.models.pricing.passes import StageCost, scoring_cost, training_cost
from libra_plan.models.pricing.rollout_stage import Rollout
from libra_plan.models.pricing.switching import between_racks_note, handover_note, link_gib_per_s
from libra_plan.models.pricing.work import TaskWork
from libra_plan.models.priors.ranks import ranks_note
from libra_plan.models.stage_option import Coupling
from libra_plan.models.topology import Cluster
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.plausibility import longest_measured
from libra_plan.profiles.schema import Point, RoleSpec

__all__ = ["TRAINING", "stage_of"]

TRAINING = ("actor_train", "critic_train", "reward_train")


def stage_of(
    role: RoleSpec,
    names: Iterable[str],
    work: TaskWork,
    coupling: Coupling,
    prices: PriceInputs,
) -> RoleStage:
    """Return the stage of a role, from its profiles of one GPU class."""
    of_phase = by_phase([prices.profiles[name] for name in names])
    cluster = prices.cluster
    writes = role.id in work.verdicts  # a judge that answers in words
    if role.kind == "rollout" or writes:
        return _rollout(role, of_phase, work, coupling, prices)
    phase = "train" if role.kind in TRAINING else "score"
    if phase not in of_phase:
        raise RefusedError(
            f"a role of kind {role.kind} is priced from a {phase} profile",
            got=", ".join(of_phase),
            way_out=f"name a {phase} profile of this GPU class",
        )
    loaded, notes = of_phase[phase]
    notes = (*notes, *work.notes)
    if phase == "train":
        spans = len(cluster.nodes) > 1
        notes = (*notes, *(between_racks_note(cluster) if spans else ()))
        return _Training(prices.fitted(loaded), loaded, work, role, cluster, notes)
    return _Scoring(prices.fitted(loaded), loaded, work, role, notes)


def _rollout(
    role: RoleSpec,
    of_phase: Mapping[str, JoinedProfile],
    work: TaskWork,
    coupling: Coupling,
    prices: PriceInputs,
) -> Rollout:
    writes = role.id in work.verdicts
    decode = of_phase.get("decode") or of_phase.get("serve")
    orders = work.verdicts[role.id] if writes else work.orders
    if decode is None or not orders:
        raise RefusedError(
            f"a role of kind {role.kind} needs a decode or serve profile", got=", ".join(of_phase)
        )
    score = of_phase.get("score")
    notes = (*decode.notes, *work.notes)
    if role.kind == "rollout":
        notes = (*notes, *handover_note(prices.cluster, decode.profile))
    return Rollout(
        prices.fitted(decode.profile),
        decode.profile,
        None if score is None else prices.fitted(score.profile),
        1.0 if score is None else shortest_tokens(score.profile.points),
        0.0 if score is None else batch_tokens(score.profile.points),
        orders,
        role,
        coupling,
        None if writes else work.drawn,
        notes,
    )


def _budget(role: RoleSpec, points: Iterable[Point], work: TaskWork, layout: Layout) -> int:
    """Return the tokens a replica takes at once: the user's, times context-parallel ranks, or measured.

    Unstated, it is the largest batch measured at the shortest length, or the longest sequence.
    """
    if role.micro_batch_tokens is not None:
        return role.micro_batch_tokens * layout.cp
    return max(int(batch_tokens(points)), work.sequences.longest)


@contextmanager
def _naming_the_budget(
    role: RoleSpec, points: Iterable[Point], work: TaskWork, budget: int
) -> Iterator[None]:
    """Name `micro_batch_tokens` in a refusal where it asks for more than was measured."""
    try:
        yield
    except RefusedError as refusal:
        longest = longest_measured(points)
        if role.micro_batch_tokens is None or min(budget, work.sequences.total) <= longest:
            raise
        way_out = f"micro_batch_tokens from {work.sequences.longest} to {longest}, the range measured"
        raise RefusedError(
            f"micro_batch_tokens {role.micro_batch_tokens}: {refusal.what}",
            got=refusal.got,
            allowed=refusal.allowed,
            way_out=f"{way_out}; or {refusal.way_out}" if refusal.way_out else way_out,
        ) from None


@dataclass(frozen=True)
class _Training(RoleStage):
    profile: FittedProfile
    loaded: LoadedProfile
    work: TaskWork
    role: RoleSpec
    cluster: Cluster
    notes: tuple[str, ...] = ()

    def prepare(self, layout: Layout, memory_mib: float, allow_prior: bool) -> Pricer:
        budget = _budget(self.role, self.loaded.points, self.work, layout)
        shortest = shortest_tokens(self.loaded.points)
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
            with _naming_the_budget(self.role, self.loaded.points, self.work, budget):
                cost = training_cost(
                    self.profile,
                    self.work.sequences,
                    budget,
                    replicas,
                    layout=layout,
                    link_gib_per_s=link,
                    shortest_tokens=shortest,
                    allow_prior=allow_prior,
                )
            beyond = ranks_note(self.profile.measured_ranks(layout), replicas)
            return cost if beyond is None else replace(cost, notes=(*cost.notes, beyond))

        return price


@dataclass(frozen=True)
class _Scoring(RoleStage):
    profile: FittedProfile
    loaded: LoadedProfile
    work: TaskWork
    role: RoleSpec
    notes: tuple[str, ...] = ()

    def prepare(self, layout: Layout, memory_mib: float, allow_prior: bool) -> Pricer:
        budget = _budget(self.role, self.loaded.points, self.work, layout)
        shortest = shortest_tokens(self.loaded.points)

        def price(replicas: int) -> StageCost:
            with _naming_the_budget(self.role, self.loaded.points, self.work, budget):
                return scoring_cost(
                    self.profile,
                    self.work.sequences,
                    budget,
                    replicas,
                    layout=layout,
                    shortest_tokens=shortest,
                    allow_prior=allow_prior,
                )

        return price

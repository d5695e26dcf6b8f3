"""The options of one layout of a role: memory, state, and which replica counts are priced."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from libra_plan.errors import RefusedError
from libra_plan.models.fit import FittedProfile
from libra_plan.models.fits import Fits, fit_name
from libra_plan.models.memory.shapes import communication_mib
from libra_plan.models.memory.states import adapter_mib
from libra_plan.models.parallelism import Layout
from libra_plan.models.pricing.passes import StageCost
from libra_plan.models.pricing.switching import (
    SleepCost,
    measured_offload,
    offloaded_cost,
    offloaded_state,
    sleep_cost,
)
from libra_plan.models.pricing.work import TaskWork
from libra_plan.models.quantities import Estimate
from libra_plan.models.stage_option import StageOption
from libra_plan.models.topology import Cluster, on_seat, whole_class
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.hardware import gpu_class
from libra_plan.profiles.schema import Point, ProfileFile, RoleSpec, SharedRate, SwitchingFile
from libra_plan.profiles.switch_costs import SwitchPrice

__all__ = [
    "LayoutPricing",
    "PriceInputs",
    "Pricer",
    "Refusals",
    "RoleOnClass",
    "RoleStage",
    "batch_tokens",
    "largest_node",
    "mixed_budgets",
    "replica_counts",
    "shortest_tokens",
    "stretched",
]


@dataclass(frozen=True)
class PriceInputs:
    """Where prices come from: the cluster, the profiles with their fits, the switching figures.

    `moves` are the recorded costs of moving tasks, by task.
    """

    cluster: Cluster
    profiles: Mapping[str, LoadedProfile]
    fits: Fits
    switching: Mapping[str, SwitchingFile]
    allow_prior: bool = False
    moves: Mapping[str, SwitchPrice] = field(default_factory=dict)

    def fitted(self, profile: LoadedProfile) -> FittedProfile:
        """Return the fit of a profile, or raise the refusal to fit it."""
        found = self.fits[fit_name(profile)]
        if isinstance(found, RefusedError):
            raise found
        return found

    def sharing(self, gpu_class: str) -> tuple[SharedRate, ...]:
        """Return what was measured of two processes on one GPU, for the class of a seat."""
        switching = self.switching.get(whole_class(gpu_class))
        return () if switching is None else switching.shared_gpu


@dataclass
class Refusals:
    """Collect why options were left out: one line per form of the role and kind of reason."""

    _found: dict[tuple[str, str], tuple[str, list[int]]] = field(default_factory=dict)

    def add(self, form: str, refusal: RefusedError | str, replicas: int | None = None) -> None:
        """Note a reason against a form (class and layout), or against one replica count of it.

        Refusals of one kind share a line, with the figures of the first of them.
        """
        kind, message = (refusal, refusal) if isinstance(refusal, str) else (refusal.what, refusal.message)
        _, counts = self._found.setdefault((form, kind), (message, []))
        if replicas is not None:
            counts.append(replicas)

    def lines(self) -> tuple[str, ...]:
        """Return the sentences, in the order the reasons came up."""
        return tuple(f"{form}{_counts(said[1])}: {said[0]}" for (form, _), said in self._found.items())


def _counts(counts: list[int]) -> str:
    if not counts:
        return ""
    span = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
    return f", {span} replicas"


ALL_COUNTS_UP_TO_GPUS = 64


def largest_node(cluster: Cluster, gpu_class: str) -> int:
    """Count the GPUs of one class on the node that has most of them."""
    return max(sum(gpu.gpu_class == gpu_class for gpu in node.gpus) for node in cluster.nodes)


def widest_replica(cluster: Cluster, gpu_class: str) -> int:
    """Count the GPUs of the largest replica there is room for: whole nodes of one NVLink domain."""
    full = largest_node(cluster, gpu_class)
    whole = Counter(
        cluster.span_of[node.id]
        for node in cluster.nodes
        if sum(gpu.gpu_class == gpu_class for gpu in node.gpus) == full
    )
    return full * max(whole.values())


def mixed_budgets(least_gpus: int, most_gpus: int, node_gpus: int) -> tuple[int, ...]:
    """List the numbers of GPUs to mix layouts on: all of a node, then halves of nodes, then whole ones."""
    half = max(1, node_gpus // 2)
    return tuple(
        gpus
        for gpus in range(max(1, least_gpus), most_gpus + 1)
        if gpus <= node_gpus
        or gpus % (half if gpus <= ALL_COUNTS_UP_TO_GPUS else node_gpus) == 0
        or gpus == least_gpus
    )


def replica_counts(
    replica_gpus: int, least_gpus: int, most_gpus: int, work_items: int, node_gpus: int, exact_gpus: int = 0
) -> tuple[int, ...]:
    """List the replica counts to price, ascending.

    Up to 64 GPUs every count, beyond it those that fill whole nodes. A count that leaves the
    largest share ⌈items/replicas⌉ as it was is left out, unless it fills whole nodes: it costs more
    GPUs for the same number of items on the busiest replica. With `exact_gpus` (pinned GPUs) only
    that count remains.
    """
    if exact_gpus:
        whole = exact_gpus % replica_gpus == 0 and exact_gpus // replica_gpus <= work_items
        return (exact_gpus // replica_gpus,) if whole else ()
    most = min(most_gpus // replica_gpus, work_items)
    least = max(1, -(-least_gpus // replica_gpus))
    found: list[int] = []
    share = 0
    for count in range(least, most + 1):
        gpus = count * replica_gpus
        whole_nodes = gpus % node_gpus == 0
        if gpus > ALL_COUNTS_UP_TO_GPUS and not whole_nodes and count > least:
            continue
        previous, share = share, -(-work_items // count)
        if share != previous or whole_nodes:
            found.append(count)
    return tuple(found)


Pricer = Callable[[int], StageCost]
"""Price a replica count."""


class RoleStage(ABC):
    """A role's kind of work with the profile that times it, and remarks on how it is priced."""

    profile: FittedProfile
    notes: tuple[str, ...]

    @abstractmethod
    def prepare(self, layout: Layout, memory_mib: float, allow_prior: bool) -> Pricer:
        """Compute what all replica counts of a layout share; `memory_mib` is what the role may reserve."""

    def ways(self) -> tuple[tuple[RoleStage, bool], ...]:
        """List how the stage may run, and whether a way needs a pool to itself."""
        return ((self, False),)


def shortest_tokens(points: Iterable[Point]) -> float:
    """Return the shortest length measured, tokens."""
    return float(min((p.seq_len_tokens for p in points if p.status == "ok" and p.seq_len_tokens), default=1))


def batch_tokens(points: Iterable[Point]) -> float:
    """Return the tokens of the largest batch measured at the shortest length: a full micro-batch."""
    measured = [p for p in points if p.status == "ok" and p.seq_len_tokens is not None]
    shortest = shortest_tokens(measured)
    sizes = [p.batch_sequences * shortest for p in measured if p.seq_len_tokens == shortest]
    return max(sizes, default=1.0)


_ADAPTERS = (
    "adapters take {mib:.0f} MiB beside the base model; what they compute is not in the measured times"
)


@dataclass(frozen=True)
class RoleOnClass:
    """A role on one GPU class: what it does, where prices come from, and where refusals go."""

    role: RoleSpec
    work: TaskWork
    gpu_class: str
    prices: PriceInputs
    refusals: Refusals

    @property
    def measured_on(self) -> str:
        """The class that profiles are measured on: that of the whole GPU."""
        return whole_class(self.gpu_class)

    @property
    def is_seat(self) -> bool:
        """Whether it is a seat on a shared GPU."""
        return self.gpu_class != self.measured_on

    @property
    def node_gpus(self) -> int:
        """GPUs of the node that has most of the class."""
        return largest_node(self.prices.cluster, self.gpu_class)

    @property
    def widest_replica(self) -> int:
        """GPUs of the largest replica there is room for: whole nodes of one NVLink domain."""
        return widest_replica(self.prices.cluster, self.gpu_class)

    @property
    def most_gpus(self) -> int:
        """The most GPUs of the class that the role may have."""
        of_class = sum(gpu.gpu_class == self.gpu_class for gpu in self.prices.cluster.gpus.values())
        return of_class if self.role.max_gpus is None else min(of_class, self.role.max_gpus)


class LayoutPricing:
    """What the options of one layout share: memory given, static state, price of sleeping."""

    def __init__(self, stage: RoleStage, layout: Layout, on: RoleOnClass) -> None:
        self.stage, self.layout, self.on = stage, layout, on
        profile, prices, role = stage.profile, on.prices, on.role
        notes: list[str] = []
        self.residual = profile.outside_allocator_mib or 0.0
        if profile.outside_allocator_mib is None:
            self.residual = gpu_class(on.measured_on).runs.outside_allocator_mib
            notes.append(f"memory outside the allocator assumed {self.residual:.0f} MiB")
        if layout not in profile.layouts:
            self.residual += communication_mib(on.measured_on, layout.tp)
        self.memory = prices.cluster.memory_mib(on.gpu_class)
        self.adapters = 0.0 if role.lora is None else adapter_mib(profile.profile.model, role.lora.rank)
        if role.lora is not None and profile.profile.software.lora_rank is None:
            notes.append(_ADAPTERS.format(mib=self.adapters))
        self.static = profile.static_mib(layout, allow_prior=prices.allow_prior).high + self.adapters
        switching = prices.switching.get(on.gpu_class)
        self.pinned = None if switching is None else switching.pinned_host_gib_per_s
        self.offload = _offload(profile.profile, role.offload, prices.allow_prior)
        rate = profile.profile.hardware.host_link_gib_per_s if self.pinned is None else self.pinned.typical
        # a neighbour on the same GPU would take the link, too, which was not measured
        self.sleeps_at = rate if role.can_sleep and not on.is_seat else None
        if on.is_seat:
            notes.append("on a seat of a shared GPU: priced beside a neighbour that always works")
        self.sleep = self._sleep(self.static)
        if layout not in profile.layouts:
            notes.append(profile.assumption(layout))
        self.notes = (*stage.notes, *notes)

    def _sleep(self, static_mib: float) -> SleepCost | None:
        rate = self.sleeps_at
        return sleep_cost(static_mib, self.residual, rate, rate) if rate else None

    @property
    def room_mib(self) -> float:
        """What the role may reserve on each GPU, MiB."""
        return self.memory - self.residual - self.adapters

    def pricer(self) -> Callable[[int], StageOption]:
        """Prepare what all replica counts share, and price them one by one."""
        price = self.stage.prepare(self.layout, self.room_mib, self.on.prices.allow_prior)
        return lambda replicas: self._option(price(replicas), replicas)

    def peak_mib(self, working: Estimate, static_mib: float | None = None) -> float:
        """Return what a GPU holds at most, MiB; refuse what does not fit on it."""
        peak = max(working.high + self.adapters, self.static if static_mib is None else static_mib)
        peak += self.residual
        if not math.isfinite(peak) or peak > self.memory:
            raise RefusedError(
                "the role does not fit on the GPU",
                got=f"{peak:.0f} MiB per GPU",
                allowed=f"{self.memory:.0f} MiB",
                way_out="smaller micro-batches, shorter sequences or a layout with more GPUs per replica",
            )
        return peak

    def _option(self, cost: StageCost, replicas: int) -> StageOption:
        static, sleep, notes, host = self.static, self.sleep, self.notes, 0.0
        if self.offload:
            profile = self.stage.profile.profile
            state = offloaded_state(profile, self.layout, replicas, self.offload)
            host = state.host_mib
            if self.offload != measured_offload(profile):
                cost = offloaded_cost(cost, state, self.pinned, profile.id)
                static = max(static - state.gpu_mib, 0.0)
                sleep = self._sleep(static)
                said = " and ".join(sorted(self.offload))
                notes = (*notes, f"{said} in host memory: assumed, no profile was measured so")
        time_s = stretched(cost.time_s, self.on.work.stretch)
        if self.on.is_seat:
            time_s = on_seat(time_s, self.on.prices.sharing(self.on.gpu_class))
        return StageOption(
            self.on.gpu_class,
            self.layout,
            replicas,
            time_s,
            self.peak_mib(cost.memory_mib, static),
            static + self.residual,
            self.residual,
            static,
            sleep.sleep_s if sleep else None,
            sleep.wake_s if sleep else None,
            (*cost.notes, *notes),
            None if cost.stream is None else cost.stream.scaled(time_s.value / cost.time_s.value),
            offloaded_host_mib=host,
        )


def _offload(profile: ProfileFile, asked: Collection[str], allow_prior: bool) -> frozenset[str]:
    """Return what lies in host memory: what the role asks for, or what the profile was measured with."""
    measured = measured_offload(profile)
    parts = frozenset(asked) or measured
    if parts != measured and (measured or not allow_prior):
        raise RefusedError(
            f"{profile.id} was not measured with {' and '.join(sorted(parts))} in host memory",
            got="offload: [" + ", ".join(sorted(parts)) + "]",
            allowed=" and ".join(sorted(measured)) or "no offload",
            way_out="measure it so, or leave out `offload`" + ("" if measured else ", or pass --allow-prior"),
        )
    return parts


def stretched(time_s: Estimate, stretch: tuple[float, float]) -> Estimate:
    """Widen a time by how much shorter or longer all lengths may be: it grows at most with their square."""
    shorter, longer = stretch
    return replace(time_s, low=time_s.low * shorter**2, high=time_s.high * longer**2)

"""Price one role: an option for every GPU class, layout and replica count that can be answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from libra_plan.errors import RefusedError
from libra_plan.models.fit import FittedProfile
from libra_plan.models.memory_physics import communication_mib
from libra_plan.models.parallelism import Layout, layout_faults
from libra_plan.models.quantities import Estimate
from libra_plan.models.sleep import sleep_cost
from libra_plan.models.topology import Cluster
from libra_plan.models.training_stage import StageCost
from libra_plan.planner.pricing.replicas import largest_node, replica_counts, widest_replica
from libra_plan.planner.pricing.stage import Stage
from libra_plan.planner.pricing.stages import stage_of
from libra_plan.planner.pricing.work import TaskWork
from libra_plan.planner.problem import Coupling, StageOption
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.schema import RoleSpec, SwitchingFile

__all__ = ["ASSUMED_RESIDUAL_MIB", "Prices", "Refusals", "role_options"]

# What a process keeps on a GPU outside its allocator where a profile did not measure it: above the
# 770 to 870 MiB seen on H200. Options priced with it say so.
ASSUMED_RESIDUAL_MIB = 1024.0


@dataclass(frozen=True)
class Prices:
    """Where prices come from: the cluster, the profiles with their fits, the switching figures."""

    cluster: Cluster
    profiles: Mapping[str, LoadedProfile]
    fitted: Callable[[LoadedProfile], FittedProfile]
    switching: Mapping[str, SwitchingFile]
    allow_prior: bool = False


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
        """Give the sentences, in the order the reasons came up."""
        return tuple(f"{form}{_counts(said[1])}: {said[0]}" for (form, _), said in self._found.items())


def _counts(counts: list[int]) -> str:
    if not counts:
        return ""
    span = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
    return f", {span} replicas"


def role_options(
    role: RoleSpec, work: TaskWork, coupling: Coupling, prices: Prices, refusals: Refusals
) -> Iterator[StageOption]:
    """Price a GPU role; what cannot be priced goes to `refusals` and costs the others nothing."""
    for gpu_class in prices.cluster.gpu_classes:
        names = [name for name in role.profiles if prices.profiles[name].file.hardware.gpu_class == gpu_class]
        if not names:
            measured = sorted({prices.profiles[name].file.hardware.gpu_class for name in role.profiles})
            refusals.add(gpu_class, f"the role's profiles were measured on {', '.join(measured)}, not on it")
            continue
        try:
            stage = stage_of(role, names, work, coupling, prices.profiles, prices.fitted, prices.cluster)
        except RefusedError as refusal:
            refusals.add(gpu_class, refusal)
            continue
        layouts = [Layout(each.tp, each.pp, each.cp, each.ep) for each in role.layouts]
        for way, alone in stage.ways():
            for layout in layouts or stage.profile.layouts:
                yield from _layout_options(role, way, alone, layout, gpu_class, work, prices, refusals)


def _layout_options(
    role: RoleSpec,
    stage: Stage,
    alone: bool,
    layout: Layout,
    gpu_class: str,
    work: TaskWork,
    prices: Prices,
    refusals: Refusals,
) -> Iterator[StageOption]:
    form = f"{gpu_class} {layout}"
    for fault in layout_faults(layout, stage.profile.profile.model):
        refusals.add(form, fault)
        return
    node_gpus = largest_node(prices.cluster, gpu_class)
    size = layout.gpus_per_replica
    if size > node_gpus and size % node_gpus:
        refusals.add(form, f"{size} GPUs per replica neither fit in a node of {node_gpus} nor fill nodes")
        return
    if size > widest_replica(prices.cluster, gpu_class):
        refusals.add(
            form, f"a replica of {size} GPUs needs {size // node_gpus} whole nodes of one NVLink domain"
        )
        return
    try:
        frame = _Frame(stage, alone, layout, gpu_class, prices, work, role.can_sleep)
    except RefusedError as refusal:
        refusals.add(form, refusal)
        return
    of_class = sum(gpu.gpu_class == gpu_class for gpu in prices.cluster.gpus.values())
    most = of_class if role.max_gpus is None else min(of_class, role.max_gpus)
    counts = replica_counts(size, role.min_gpus, most, work.samples, node_gpus, len(role.pinned_gpus))
    if not counts:
        refusals.add(form, f"no replica count fits {role.min_gpus} to {most} GPUs and {work.samples} samples")
    for replicas in counts:
        try:
            yield frame.option(replicas)
        except RefusedError as refusal:
            refusals.add(form, refusal, replicas)


class _Frame:
    """What the options of one layout share: memory given, static state, price of sleeping."""

    def __init__(
        self,
        stage: Stage,
        alone: bool,
        layout: Layout,
        gpu_class: str,
        prices: Prices,
        work: TaskWork,
        can_sleep: bool,
    ) -> None:
        self.stage, self.alone, self.layout = stage, alone, layout
        self.gpu_class, self.prices, self.work = gpu_class, prices, work
        outside = stage.profile.outside_allocator_mib
        self.residual = ASSUMED_RESIDUAL_MIB if outside is None else outside
        assumed = f"memory outside the allocator assumed {self.residual:.0f} MiB"
        notes = (assumed,) if outside is None else ()
        if layout not in stage.profile.layouts:
            self.residual += communication_mib(layout.tp)
        self.memory = prices.cluster.memory_mib(gpu_class)
        self.static = stage.profile.static_mib(layout, allow_prior=prices.allow_prior).high
        self.price = stage.prepare(layout, self.memory - self.residual, prices.allow_prior)
        pinned = None
        if gpu_class in prices.switching:
            pinned = prices.switching[gpu_class].pinned_host_gib_per_s
        rate = pinned.typical if pinned is not None else stage.profile.profile.hardware.host_link_gib_per_s
        self.sleep = sleep_cost(self.static, self.residual, rate, rate) if can_sleep and rate else None
        if layout not in stage.profile.layouts:
            notes = (*notes, stage.profile.assumption(layout))
        self.notes = (*stage.notes, *notes)

    def option(self, replicas: int) -> StageOption:
        """Price one replica count; refuse what does not fit on the GPU."""
        cost: StageCost = self.price(replicas)
        peak = max(cost.memory_mib.high, self.static) + self.residual
        if not math.isfinite(peak) or peak > self.memory:
            raise RefusedError(
                "the role does not fit on the GPU",
                got=f"{peak:.0f} MiB per GPU",
                allowed=f"{self.memory:.0f} MiB",
                way_out="smaller micro-batches, shorter sequences or a layout with more GPUs per replica",
            )
        return StageOption(
            self.gpu_class,
            self.layout,
            replicas,
            _stretched(cost.time_s, self.work.stretch),
            peak,
            self.static + self.residual,
            self.residual,
            self.static,
            self.sleep.sleep_s if self.sleep else None,
            self.sleep.wake_s if self.sleep else None,
            (*cost.notes, *self.notes),
            self.alone,
        )


def _stretched(time_s: Estimate, stretch: tuple[float, float]) -> Estimate:
    """Widen a time by how much shorter or longer all lengths may be: it grows at most with their square."""
    shorter, longer = stretch
    return replace(time_s, low=time_s.low * shorter**2, high=time_s.high * longer**2)

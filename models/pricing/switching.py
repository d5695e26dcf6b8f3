"""The costs of handing over weights, putting a role to sleep, offloading its state and restarting a task.

A step with the optimizer in host memory brings its states in and puts them back, layer by layer; weights
come in for every forward and every backward pass, and trained ones go back once a step. Buffers of two
layers stay on the GPU, one at work and one on its way. The time of such a step was not measured, so every
price of offloading is assumed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from libra_plan.errors import RefusedError
from libra_plan.models.memory.states import adapter_mib, optimizer_mib, weights_mib
from libra_plan.models.parallelism import Layout
from libra_plan.models.pricing.passes import StageCost
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.topology import Cluster
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.hardware import bytes_per_weight
from libra_plan.profiles.schema import (
    MeasuredSpread,
    ModelShape,
    ProfileFile,
    Software,
    SwitchingFile,
    TaskSpec,
)
from libra_plan.profiles.switch_costs import SwitchPrice
from libra_plan.profiles.units import GIB, MIB_PER_GIB

__all__ = [
    "Offloaded",
    "SleepCost",
    "between_racks_note",
    "handover_note",
    "link_gib_per_s",
    "measured_offload",
    "offloaded_cost",
    "offloaded_state",
    "restart_s",
    "sleep_cost",
    "sync_s",
    "weight_gib",
]


@dataclass(frozen=True, slots=True)
class SleepCost:
    """Seconds to move a role's state to pinned host memory and back, and what is left where.

    Per GPU: `asleep_mib` stays on the device (CUDA context, NCCL buffers: what the device shows in
    use beyond the allocator's reserve, 770 MiB for decode and 870 MiB for score and train on H200,
    the driver's idle 527 MiB included), `host_mib` is taken on the host.
    """

    sleep_s: float
    wake_s: float
    asleep_mib: float
    host_mib: float


def sleep_cost(
    static_mib: float, asleep_mib: float, to_host_gib_per_s: float, to_device_gib_per_s: float
) -> SleepCost:
    """Price a move of `static_mib` per GPU over pinned host memory (51 GiB/s each way on H200).

    All GPUs of a node are taken to move at that rate at once. Pageable memory is some forty times
    slower (1.2–1.4 GiB/s), so a role without pinned memory must not be priced by this.
    """
    gib = static_mib / MIB_PER_GIB
    return SleepCost(gib / to_host_gib_per_s, gib / to_device_gib_per_s, asleep_mib, static_mib)


_BUFFERED_LAYERS = 2.0


@dataclass(frozen=True, slots=True)
class Offloaded:
    """MiB per GPU: gone from it, taken on the host, moved over the link a step and a micro-batch."""

    gpu_mib: float
    host_mib: float
    per_step_mib: float
    per_micro_batch_mib: float


def measured_offload(profile: ProfileFile) -> frozenset[str]:
    """Return what was in host memory when a profile was measured: its flag `offload`, parts joined by +."""
    said = profile.software.flags.get("offload")
    return frozenset(said.split("+")) if isinstance(said, str) else frozenset()


def offloaded_state(profile: ProfileFile, layout: Layout, ranks: int, parts: Collection[str]) -> Offloaded:
    """Return the memory that offloading `parts` (optimizer, parameters) moves, over `ranks` replicas."""
    model, software, trains = profile.model, profile.software, profile.phase == "train"
    states = optimizer_mib(model, software, layout, ranks) if trains and "optimizer" in parts else 0.0
    weights = 0.0
    if "parameters" in parts:
        weights = weights_mib(model, software, layout) / (ranks if software.zero_stage == 3 else 1)
    written = weights if trains and software.lora_rank is None else 0.0
    gone = max(1.0 - _BUFFERED_LAYERS / model.layers, 0.0) * (states + weights)
    passes = 2 if trains else 1
    return Offloaded(gone, states + weights, 2 * states + written, passes * weights)


def offloaded_cost(cost: StageCost, state: Offloaded, link: MeasuredSpread | None, name: str) -> StageCost:
    """Return the cost with offloaded state: the step waits for the link; `low` hides all that it can."""
    if link is None:
        raise RefusedError(
            f"{name}: what moving state to pinned host memory takes is unknown",
            way_out="give pinned_host_gib_per_s in a switching.yaml of this GPU class",
        )
    gib = (state.per_step_mib + state.per_micro_batch_mib * cost.micro_batches) / MIB_PER_GIB
    time, memory = cost.time_s, cost.memory_mib
    value = max(memory.value - state.gpu_mib, 0.0)
    return replace(
        cost,
        time_s=Estimate(
            time.value + gib / link.typical,
            max(time.low, gib / link.high),
            time.high + gib / link.low,
            time.unit,
            Origin.ASSUMED,
            time.rows,
        ),
        memory_mib=Estimate(
            value,
            min(max(memory.low - state.gpu_mib, 0.0), value),
            max(memory.high - state.gpu_mib, value),
            memory.unit,
            Origin.ASSUMED,
            memory.rows,
        ),
    )


def weight_gib(model: ModelShape, software: Software) -> float:
    """Return the size of a model's weights in the precision it is used in, GiB."""
    return model.params * bytes_per_weight(software.precision) / GIB


def link_gib_per_s(cluster: Cluster, profile: LoadedProfile, one_node: bool) -> float | None:
    """Return the bandwidth between GPUs of one node, or of several: the cluster's, else the profile's.

    Between several nodes the slowest they may meet counts, that between racks where there are some:
    prices are made before anything is placed. Placement then keeps a task in one rack if it can.
    """
    hardware = profile.file.hardware
    if one_node:
        return cluster.intra_node_gib_per_s or hardware.intra_node_gib_per_s
    return cluster.between_nodes_gib_per_s() or hardware.inter_node_gib_per_s


def handover_gib_per_s(cluster: Cluster, profile: LoadedProfile) -> float | None:
    """Return the slowest bandwidth that new weights cross between two pools; None when unknown."""
    return link_gib_per_s(cluster, profile, len(cluster.nodes) == 1)


def handover_note(cluster: Cluster, profile: LoadedProfile) -> tuple[str, ...]:
    """Return a note where weights go through a checkpoint (their link is unknown) or cross racks."""
    if handover_gib_per_s(cluster, profile) is not None:
        return between_racks_note(cluster)
    key = "intra" if len(cluster.nodes) == 1 else "inter"
    return (f"{key}_node_gib_per_s is unknown: between pools, weights are priced through a checkpoint",)


def between_racks_note(cluster: Cluster) -> tuple[str, ...]:
    """Return a note where a price is based on the link between racks; it holds where none is crossed."""
    link = cluster.between_nodes_gib_per_s()
    if cluster.inter_rack_gib_per_s is None or link == cluster.inter_node_gib_per_s:
        return ()
    return (f"traffic between nodes is priced at {link:g} GiB/s, as if it crossed racks",)


def sync_s(
    cluster: Cluster,
    rollouts: Iterable[LoadedProfile],
    switching: SwitchingFile | None,
    adapter_rank: int | None = None,
) -> float | None:
    """Return the seconds to hand new weights from training to rollout: weights ÷ bandwidth.

    With `adapter_rank` only an adapter of that rank is handed over, the base model stays.

    A broadcast in a pipeline passes the weights once over the slowest link, which joins nodes when
    the cluster has several. Where that bandwidth is unknown the weights go through a checkpoint in
    the file system, a path that always exists and is the slowest; where that is unmeasured too, None.
    """
    longest = 0.0
    for profile in rollouts:
        gib = weight_gib(profile.file.model, profile.file.software)
        if adapter_rank is not None:
            gib = adapter_mib(profile.file.model, adapter_rank) / MIB_PER_GIB
        link = handover_gib_per_s(cluster, profile)
        if link is not None:
            longest = max(longest, gib / link)
        elif switching is not None:
            saving = gib / switching.save_gib_per_s.typical
            longest = max(longest, saving + gib / switching.load_gib_per_s.typical)
        else:
            return None
    return longest


def restart_s(
    task: TaskSpec,
    switching: SwitchingFile | None,
    trained_gib: float,
    loaded_gib: float,
    horizon_s: float,
    recorded: SwitchPrice | None = None,
) -> float:
    """Return the seconds of work a task loses when its placement changes.

    The user's own figure, else the 90th percentile of its `recorded` moves, else start of the ranks
    (90th percentile) + save of the trained state + load of it and of the other roles' weights.
    Unmeasured, a change is charged the whole horizon, so that a task whose price is unknown is not
    moved for gain.
    """
    if task.lifecycle.restart_s is not None:
        return task.lifecycle.restart_s
    if recorded is not None:
        return recorded.p90_s
    if switching is None:
        return horizon_s
    saving = trained_gib / switching.save_gib_per_s.typical
    loading = (trained_gib + loaded_gib) / switching.load_gib_per_s.typical
    return switching.start_s.p90 + saving + loading

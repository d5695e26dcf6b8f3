"""What it costs to hand over weights, to put roles to sleep and to restart a task."""

from __future__ import annotations

from collections.abc import Iterable

from libra_plan.models.states import adapter_mib
from libra_plan.models.topology import Cluster
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.hardware import bytes_per_weight
from libra_plan.profiles.schema import ModelShape, Software, SwitchingFile, TaskSpec
from libra_plan.profiles.switch_costs import SwitchPrice
from libra_plan.profiles.units import GIB, MIB_PER_GIB

__all__ = ["between_racks_note", "handover_note", "link_gib_per_s", "restart_s", "sync_s", "weight_gib"]


def weight_gib(model: ModelShape, software: Software) -> float:
    """Give the size of a model's weights in the precision it is used in, GiB."""
    return model.params * bytes_per_weight(software.precision) / GIB


def link_gib_per_s(cluster: Cluster, profile: LoadedProfile, one_node: bool) -> float | None:
    """Give the bandwidth between GPUs of one node, or of several: the cluster's, else the profile's.

    Between several nodes the slowest they may meet counts, that between racks where there are some:
    prices are made before anything is placed. Placement then keeps a task in one rack if it can.
    """
    hardware = profile.file.hardware
    if one_node:
        return cluster.intra_node_gib_per_s or hardware.intra_node_gib_per_s
    return cluster.between_nodes_gib_per_s() or hardware.inter_node_gib_per_s


def handover_gib_per_s(cluster: Cluster, profile: LoadedProfile) -> float | None:
    """Give the slowest bandwidth that new weights cross between two pools; None when unknown."""
    return link_gib_per_s(cluster, profile, len(cluster.nodes) == 1)


def handover_note(cluster: Cluster, profile: LoadedProfile) -> tuple[str, ...]:
    """Say that weights take the way through a file, when their own is unknown, or cross racks."""
    if handover_gib_per_s(cluster, profile) is not None:
        return between_racks_note(cluster)
    key = "intra" if len(cluster.nodes) == 1 else "inter"
    return (f"{key}_node_gib_per_s is unknown: between pools, weights are priced through a checkpoint",)


def between_racks_note(cluster: Cluster) -> tuple[str, ...]:
    """Say that a price counts on the link between racks, and holds if placement needs none."""
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
    """Give the seconds to hand new weights from training to rollout: weights ÷ bandwidth.

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
    """Give the seconds of work a task loses when its placement changes.

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

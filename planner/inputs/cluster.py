"""Read the cluster that the user named: its nodes and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from libra_plan.errors import ClusterError, InputError, Where, few
from libra_plan.models.clusters import cluster_of, uniform_cluster
from libra_plan.models.topology import Cluster
from libra_plan.notes import Notes
from libra_plan.planner.inputs.arguments import check_count
from libra_plan.profiles.catalog import ProfilesFolder, load_cluster
from libra_plan.profiles.counting import counted
from libra_plan.profiles.plausibility import unmeasured_classes
from libra_plan.profiles.schema import ClusterFile, NodeSpec
from libra_plan.profiles.wording import did_you_mean

__all__ = ["ClusterFlags", "measured_mib", "memory_notes", "read_cluster", "unknown_memory"]

_MOST_SHOWN = 8


@dataclass(frozen=True, slots=True)
class ClusterFlags:
    """How the user named the cluster; at most one of gpus, cluster and local."""

    gpus: int | None = None
    gpus_per_node: int = 8
    gpu_class: str | None = None
    cluster: str | Path | Cluster | None = None
    local: bool = False


def read_cluster(folder: ProfilesFolder, flags: ClusterFlags, notes: Notes) -> Cluster:
    """Build the cluster that the flags name, or else that of the folder's cluster.yaml."""
    named = {"gpus": flags.gpus is not None, "cluster": flags.cluster is not None, "local": flags.local}
    if sum(named.values()) > 1:
        raise InputError(
            "more than one cluster was named",
            got=", ".join(name for name, given in named.items() if given),
            allowed="one of gpus (--gpus), cluster (--cluster) and local (--local)",
            way_out="keep one of them",
        )
    measured = measured_mib(folder)
    if flags.local:
        return _local(folder, measured)
    if flags.gpus is not None:
        check_count("gpus (--gpus)", flags.gpus, most=1_000_000)
        check_count("gpus_per_node (--gpus-per-node)", flags.gpus_per_node, most=1_024)
        return _uniform(flags, flags.gpus, measured)
    if isinstance(flags.cluster, Cluster):
        return flags.cluster
    if flags.cluster is not None:
        path = Path(flags.cluster)
        return cluster_of(_plannable(load_cluster(path)[0], path, measured, notes), measured)
    if folder.cluster is not None:
        return cluster_of(_plannable(folder.cluster, folder.path, measured, notes), measured)
    raise InputError(
        "no cluster was named and the folder has no cluster.yaml",
        got=folder.path,
        allowed="gpus (--gpus N), cluster (--cluster FILE), local (--local), or cluster.yaml in the folder",
        way_out="try gpus=8 (--gpus 8)",
    )


def _local(folder: ProfilesFolder, measured: Mapping[str, float]) -> Cluster:
    """Read the GPUs of this machine from NVML, of the classes that profiles were measured on."""
    from libra_plan.planner.telemetry.local import local_cluster
    from libra_plan.planner.telemetry.nvml import read_cards

    hardware = [profile.file.hardware for profile in folder.profiles.values()]
    classes = {
        each.nvml_name: each.gpu_class for each in hardware if each.nvml_name and each.gpu_class in measured
    }
    return local_cluster(read_cards(), classes)


def _uniform(flags: ClusterFlags, gpus: int, measured: Mapping[str, float]) -> Cluster:
    """Make equal nodes of one GPU class, which must be named when the profiles have several."""
    if flags.gpu_class is None and len(measured) != 1:
        raise ClusterError(
            "gpus (--gpus N) needs to know which GPUs",
            got=f"{counted(len(measured), 'GPU class', 'GPU classes')} in the profiles",
            allowed=", ".join(sorted(measured)) or "none: there is no profile",
            way_out="add gpu_class (--gpu-class)",
        )
    gpu_class = flags.gpu_class or next(iter(measured))
    if gpu_class not in measured:
        raise ClusterError(
            "no profile was measured on this GPU class",
            got=gpu_class,
            allowed=", ".join(sorted(measured)),
            way_out=did_you_mean(gpu_class, measured) or "name one of these as gpu_class (--gpu-class)",
        )
    return uniform_cluster(gpus, gpu_class, measured[gpu_class], flags.gpus_per_node)


def _plannable(file: ClusterFile, path: Path, measured: Mapping[str, float], notes: Notes) -> ClusterFile:
    """Refuse a cluster without a GPU of a class that some profile was measured on."""
    lines = unmeasured_classes(file, measured)
    classes = list(dict.fromkeys(node.gpu_class for node in file.nodes))
    if len(lines) == len(classes):
        hint = " ".join(filter(None, (did_you_mean(name, measured) for name in classes)))
        raise ClusterError(
            "no profile was measured on any GPU class of the cluster",
            got=few(classes),
            allowed=", ".join(sorted(measured)) or "none: there is no profile",
            way_out=hint or "correct it, or measure a profile on it",
            where=Where(str(path)),
        )
    for line in lines:
        notes(f"warning: {line}")
    for line in memory_notes(file, measured):
        notes(line)
    return file


def measured_mib(folder: ProfilesFolder) -> dict[str, float]:
    """Map each GPU class to the smallest memory a profile of the workload was measured with, MiB."""
    found: dict[str, float] = {}
    named = set()
    if folder.workload is not None:
        named = {name for task in folder.workload.tasks for role in task.roles for name in role.profiles}
    for name, profile in folder.profiles.items():
        if named and name not in named:
            continue
        hardware = profile.file.hardware
        found[hardware.gpu_class] = min(found.get(hardware.gpu_class, float("inf")), hardware.memory_mib)
    return found


def memory_notes(file: ClusterFile, measured: Mapping[str, float]) -> list[str]:
    """Return a note for each GPU class whose memory is taken from profiles, not from the cluster."""
    return [
        f"gpu_memory_mib is not stated for {few(nodes, _MOST_SHOWN)}: {measured[name]:g} MiB taken, "
        f"with which {name} was measured"
        for name, nodes in _nodes_without_memory(file).items()
        if name in measured
    ]


def unknown_memory(file: ClusterFile, measured: Mapping[str, float]) -> list[str]:
    """Return a note for each GPU class whose memory neither the cluster nor a profile states."""
    return [
        f"gpu_memory_mib is not stated for {few(nodes, _MOST_SHOWN)}, and it cannot be known without "
        f"a profile measured on {name}"
        for name, nodes in _nodes_without_memory(file).items()
        if name not in measured
    ]


def _nodes_without_memory(file: ClusterFile) -> dict[str, list[str]]:
    """List by GPU class the nodes whose memory is not stated."""
    found: dict[str, list[str]] = {}
    for node in file.nodes:
        if not _states_memory(node):
            found.setdefault(node.gpu_class, []).append(node.id)
    return found


def _states_memory(node: NodeSpec) -> bool:
    """Whether the memory of every usable GPU of a node is stated."""
    if node.gpu_memory_mib is not None or node.excluded or node.state != "ready" or node.held_by is not None:
        return True
    return bool(node.gpus) and all(gpu.memory_mib is not None for gpu in node.gpus)

"""What a workload and a cluster must agree on: the names of GPUs, and how much memory they have."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from libra_plan.errors import ClusterError, WorkloadError, few

if TYPE_CHECKING:
    from libra_plan.errors import Where
    from libra_plan.models.topology import Cluster, GpuId
    from libra_plan.profiles.catalog import ProfilesFolder
    from libra_plan.profiles.schema import ClusterFile, NodeSpec

__all__ = ["check_gpu_names", "memory_notes", "unknown_memory"]

_MOST_SHOWN = 8


def check_gpu_names(folder: ProfilesFolder, cluster: Cluster) -> None:
    """Refuse `pinned_gpus` and `excluded_gpus` that name no usable GPU of the cluster, or one twice."""
    from libra_plan.models.clusters import resolve_gpu

    for task, role, key, names in _lists(folder):
        found: dict[GpuId, str] = {}
        for at, name in names:
            try:
                gpu = resolve_gpu(cluster, name)
            except ClusterError as wrong:
                raise WorkloadError(
                    f"task `{task}`, role `{role}`: {wrong.what}",
                    got=name,
                    allowed=_allowed(cluster, name) or wrong.allowed,
                    way_out=_way_out(cluster, name) or wrong.way_out,
                    where=_where(folder.path, f"{key}.{at}"),
                ) from None
            if gpu in found:
                raise WorkloadError(
                    f"task `{task}`, role `{role}`: one GPU is named twice",
                    got=f"{found[gpu]} and {name}",
                    way_out="name it once",
                    where=_where(folder.path, f"{key}.{at}"),
                )
            found[gpu] = name


def _lists(folder: ProfilesFolder) -> Iterator[tuple[str, str, str, list[tuple[str, str]]]]:
    """Give (task, role, key of the role, [(key below, name)]) for every role."""
    if folder.workload is None:
        return
    for t, task in enumerate(folder.workload.tasks):
        for r, role in enumerate(task.roles):
            lists = {"pinned_gpus": role.pinned_gpus, "excluded_gpus": role.excluded_gpus}
            names = [(f"{name}[{at}]", gpu) for name, gpus in lists.items() for at, gpu in enumerate(gpus)]
            yield task.id, role.id, f"tasks[{t}].roles[{r}]", names


def _where(folder: Path, key: str) -> Where:
    from libra_plan.profiles.catalog import ENDINGS
    from libra_plan.profiles.document import read_document

    path = next(path for ending in ENDINGS if (path := folder / f"workload{ending}").is_file())
    return read_document(path).where(key)


def _allowed(cluster: Cluster, name: str) -> str | None:
    """List the usable GPUs of the node that a name begins with, or else the nodes."""
    node, colon, _ = name.rpartition(":")
    if not colon:
        return None
    gpus = [str(gpu) for gpu in cluster.gpus if gpu.node == node]
    nodes = [each.id for each in cluster.nodes]
    return few(gpus, _MOST_SHOWN) if gpus else f"GPUs of {few(nodes, _MOST_SHOWN)}"


def _way_out(cluster: Cluster, name: str) -> str | None:
    node, colon, index = name.rpartition(":")
    nodes = [each.id for each in cluster.nodes]
    near = difflib.get_close_matches(node, nodes, n=1) if colon and node not in nodes else []
    return f"did you mean `{near[0]}:{index}`?" if near else None


def memory_notes(file: ClusterFile, measured_mib: Mapping[str, float]) -> list[str]:
    """Say where the memory of GPUs comes from the profiles, because the cluster does not state it."""
    return [
        f"gpu_memory_mib is not stated for {few(nodes, _MOST_SHOWN)}: {measured_mib[name]:g} MiB taken, "
        f"with which {name} was measured"
        for name, nodes in _unstated(file).items()
        if name in measured_mib
    ]


def unknown_memory(file: ClusterFile, measured_mib: Mapping[str, float]) -> list[str]:
    """Say which GPUs have a memory that neither the cluster states nor a profile was measured with."""
    return [
        f"gpu_memory_mib is not stated for {few(nodes, _MOST_SHOWN)}, and it cannot be known without "
        f"a profile measured on {name}"
        for name, nodes in _unstated(file).items()
        if name not in measured_mib
    ]


def _unstated(file: ClusterFile) -> dict[str, list[str]]:
    """List by GPU class the nodes whose memory is not stated."""
    found: dict[str, list[str]] = {}
    for node in file.nodes:
        if _is_unstated(node):
            found.setdefault(node.gpu_class, []).append(node.id)
    return found


def _is_unstated(node: NodeSpec) -> bool:
    if node.gpu_memory_mib is not None or node.excluded or node.state != "ready" or node.held_by is not None:
        return False
    return not node.gpus or any(gpu.memory_mib is None for gpu in node.gpus)

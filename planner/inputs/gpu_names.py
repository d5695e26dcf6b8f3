"""Check that the GPUs that a workload pins or excludes are usable GPUs of the cluster."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from libra_plan.errors import ClusterError, Where, WorkloadError, few
from libra_plan.models.clusters import resolve_gpu
from libra_plan.models.topology import Cluster, GpuId
from libra_plan.profiles.catalog import ENDINGS, ProfilesFolder
from libra_plan.profiles.document import read_document

__all__ = ["check_gpu_names"]

_MOST_SHOWN = 8


def check_gpu_names(folder: ProfilesFolder, cluster: Cluster) -> None:
    """Refuse `pinned_gpus` and `excluded_gpus` that name no usable GPU of the cluster, or one twice."""
    for task, role, key, names in _named_gpus(folder):
        found: dict[GpuId, str] = {}
        for at, name in names:
            try:
                gpu = resolve_gpu(cluster, name)
            except ClusterError as wrong:
                raise WorkloadError(
                    f"task `{task}`, role `{role}`: {wrong.what}",
                    got=name,
                    allowed=_allowed(cluster, name) or wrong.allowed,
                    way_out=_suggestion(cluster, name) or wrong.way_out,
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


def _named_gpus(folder: ProfilesFolder) -> Iterator[tuple[str, str, str, list[tuple[str, str]]]]:
    """Yield the task, the role, the role's key and the GPUs it names, each with its key below the role's."""
    for t, task in enumerate(folder.workload.tasks if folder.workload else ()):
        for r, role in enumerate(task.roles):
            lists = {"pinned_gpus": role.pinned_gpus, "excluded_gpus": role.excluded_gpus}
            names = [(f"{name}[{at}]", gpu) for name, gpus in lists.items() for at, gpu in enumerate(gpus)]
            yield task.id, role.id, f"tasks[{t}].roles[{r}]", names


def _where(folder: Path, key: str) -> Where:
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


def _suggestion(cluster: Cluster, name: str) -> str | None:
    node, colon, index = name.rpartition(":")
    nodes = [each.id for each in cluster.nodes]
    near = difflib.get_close_matches(node, nodes, n=1) if colon and node not in nodes else []
    return f"did you mean `{near[0]}:{index}`?" if near else None

"""Check what types cannot say about a cluster file."""

from __future__ import annotations

from collections.abc import Collection

from libra_plan.errors import ClusterError
from libra_plan.profiles import wording
from libra_plan.profiles.document import Document
from libra_plan.profiles.hardware import implausible_memory
from libra_plan.profiles.schema import ClusterFile, NodeSpec

__all__ = ["check", "unmeasured"]


def check(cluster: ClusterFile, document: Document) -> None:
    """Refuse a cluster whose nodes or GPUs are counted twice, missing or contradictory."""
    if not cluster.nodes:
        raise ClusterError("the cluster has no nodes", way_out="list them", where=document.where("nodes"))
    seen: dict[str, str] = {}
    uuids: dict[str, str] = {}
    for position, node in enumerate(cluster.nodes):
        key = f"nodes[{position}]"
        if node.id in seen:
            raise ClusterError(
                f"two nodes have the id `{node.id}`",
                got=f"the other on line {document.where(seen[node.id]).line}",
                way_out="give each node its own id",
                where=document.where(f"{key}.id"),
            )
        seen[node.id] = f"{key}.id"
        _check_node(node, key, document)
        _check_uuids(node, key, document, uuids)
    classes = dict.fromkeys(node.gpu_class for node in cluster.nodes)
    for name in cluster.price_per_gpu_hour:
        if name not in classes:
            raise ClusterError(
                f"`{name}` has a price, but no node is of that GPU class",
                got=name,
                allowed=", ".join(classes),
                way_out=wording.did_you_mean(name, classes),
                where=document.where(f"price_per_gpu_hour.{name}"),
            )


def _check_node(node: NodeSpec, key: str, document: Document) -> None:
    if (node.gpu_count is None) == (not node.gpus):
        raise ClusterError(
            f"node `{node.id}` must state either `gpu_count` or `gpus`",
            got="both" if node.gpus else "neither",
            way_out="`gpu_count: 8` for equal GPUs, `gpus` to list them one by one",
            where=document.where(f"{key}.gpus" if node.gpus else key),
        )
    if node.gpu_class.endswith(".seat"):
        raise ClusterError(
            "a gpu_class may not end with `.seat`",
            got=node.gpu_class,
            way_out="state the class of the GPU, and `shared: true` for the GPU that two roles share",
            where=document.where(f"{key}.gpu_class"),
        )
    if node.port_first >= node.port_last:
        raise ClusterError(
            "`port_first` must be below `port_last`",
            got=f"{node.port_first} and {node.port_last}",
            where=document.where(f"{key}.port_first" if node.port_first != 24000 else f"{key}.port_last"),
        )
    _check_memory(node, key, document)
    indices: dict[int, int] = {}
    for position, gpu in enumerate(node.gpus):
        if gpu.index in indices:
            raise ClusterError(
                f"two GPUs of node `{node.id}` have the index {gpu.index}",
                got=f"the other is gpus[{indices[gpu.index]}]",
                where=document.where(f"{key}.gpus[{position}].index"),
            )
        indices[gpu.index] = position


def _check_memory(node: NodeSpec, key: str, document: Document) -> None:
    stated = [(f"{key}.gpu_memory_mib", node.gpu_memory_mib)]
    stated += [
        (f"{key}.gpus[{position}].memory_mib", gpu.memory_mib) for position, gpu in enumerate(node.gpus)
    ]
    for at, memory_mib in stated:
        wrong = None if memory_mib is None else implausible_memory(node.gpu_class, memory_mib)
        if wrong is not None:
            raise ClusterError(**wrong, where=document.where(at))


def unmeasured(cluster: ClusterFile, measured: Collection[str]) -> list[str]:
    """Say which GPU classes of a cluster no profile was measured on: nothing can be planned there.

    `measured` are the classes of the profiles, and of those that can be borrowed.
    """
    return [
        f"no profile was measured on GPU class {name}; "
        + (wording.did_you_mean(name, measured) or f"measured: {wording.some_of(name, measured)}")
        for name in dict.fromkeys(node.gpu_class for node in cluster.nodes)
        if name not in measured
    ]


def _check_uuids(node: NodeSpec, key: str, document: Document, uuids: dict[str, str]) -> None:
    for position, gpu in enumerate(node.gpus):
        if gpu.uuid is None:
            continue
        here = f"{key}.gpus[{position}].uuid"
        if uuids.setdefault(gpu.uuid, here) != here:
            raise ClusterError(
                f"two GPUs have the UUID {gpu.uuid}",
                got=f"the other is {uuids[gpu.uuid]}",
                where=document.where(here),
            )

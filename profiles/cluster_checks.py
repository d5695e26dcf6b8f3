"""Check what types cannot say about a cluster file."""

from __future__ import annotations

from libra_plan.errors import ClusterError
from libra_plan.profiles import wording
from libra_plan.profiles.document import Document
from libra_plan.profiles.hardware import implausible_memory
from libra_plan.profiles.place import Place
from libra_plan.profiles.schema import ClusterFile, NodeSpec

__all__ = ["check_cluster"]


def check_cluster(cluster: ClusterFile, document: Document) -> None:
    """Refuse a cluster whose nodes or GPUs are counted twice, missing or contradictory."""
    place = Place(document, ClusterError)
    place.refuse_if(not cluster.nodes, "the cluster has no nodes", "nodes", way_out="list them")
    place.at("nodes").require_unique([node.id for node in cluster.nodes], "node")
    uuids: dict[str, str] = {}
    for position, node in enumerate(cluster.nodes):
        here = place.at(f"nodes[{position}]")
        _check_node(node, here)
        _check_gpus(node, here, uuids)
    classes = dict.fromkeys(node.gpu_class for node in cluster.nodes)
    for name in cluster.price_per_gpu_hour:
        place.refuse_if(
            name not in classes,
            f"`{name}` has a price, but no node is of that GPU class",
            f"price_per_gpu_hour.{name}",
            got=name,
            allowed=", ".join(classes),
            way_out=wording.did_you_mean(name, classes),
        )


def _check_node(node: NodeSpec, place: Place) -> None:
    place.refuse_if(
        (node.gpu_count is None) == (not node.gpus),
        f"node `{node.id}` must state either `gpu_count` or `gpus`",
        "gpus" if node.gpus else "",
        got="both" if node.gpus else "neither",
        way_out="`gpu_count: 8` for equal GPUs, `gpus` to list them one by one",
    )
    place.refuse_if(
        node.gpu_class.endswith(".seat"),
        "a gpu_class may not end with `.seat`",
        "gpu_class",
        got=node.gpu_class,
        way_out="state the class of the GPU, and `shared: true` for the GPU that two roles share",
    )
    place.refuse_if(
        node.port_first >= node.port_last,
        "`port_first` must be below `port_last`",
        "port_first" if node.port_first != 24000 else "port_last",
        got=f"{node.port_first} and {node.port_last}",
    )
    stated = [("gpu_memory_mib", node.gpu_memory_mib)]
    stated += [(f"gpus[{position}].memory_mib", gpu.memory_mib) for position, gpu in enumerate(node.gpus)]
    for key, memory_mib in stated:
        wrong = None if memory_mib is None else implausible_memory(node.gpu_class, memory_mib)
        if wrong is not None:
            place.refuse(below=key, **wrong)


def _check_gpus(node: NodeSpec, place: Place, uuids: dict[str, str]) -> None:
    indices: dict[int, int] = {}
    for position, gpu in enumerate(node.gpus):
        here = place.at(f"gpus[{position}]")
        first = indices.setdefault(gpu.index, position)
        here.refuse_if(
            first != position,
            f"two GPUs of node `{node.id}` have the index {gpu.index}",
            "index",
            got=f"the other is gpus[{first}]",
        )
        if gpu.uuid is not None:
            other = uuids.setdefault(gpu.uuid, here.at("uuid").key)
            twice = other != here.at("uuid").key
            here.refuse_if(twice, f"two GPUs have the UUID {gpu.uuid}", "uuid", got=f"the other is {other}")

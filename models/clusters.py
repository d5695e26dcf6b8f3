"""Turn a cluster file or a plain GPU count into the cluster that is planned on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

from libra_plan.errors import ClusterError
from libra_plan.models.topology import SEATS, AbsentGpu, Cluster, Gpu, GpuId, Node, seat_class, seat_index
from libra_plan.profiles import hardware
from libra_plan.profiles.schema import ClusterFile, GpuSpec, NodeSpec
from libra_plan.profiles.wording import did_you_mean

__all__ = [
    "cluster_of",
    "resolve_gpu",
    "uniform_cluster",
]


def cluster_of(file: ClusterFile, measured_mib: Mapping[str, float] | None = None) -> Cluster:
    """Build the cluster of a file; what no plan may use is listed in `Cluster.absent`.

    `measured_mib` gives the memory per GPU class that profiles were measured on, MiB, for nodes
    that do not state their own.
    """
    _refuse_repeats("node", [node.id for node in file.nodes])
    _refuse_repeats("GPU UUID", [gpu.uuid for node in file.nodes for gpu in node.gpus if gpu.uuid])
    nodes = tuple(_node(spec, measured_mib or {}) for spec in file.nodes if _node_absence(spec) is None)
    absent = tuple(gpu for spec in file.nodes for gpu in _absent(spec))
    cluster = Cluster(
        file.name,
        nodes,
        file.intra_node_gib_per_s,
        file.inter_node_gib_per_s,
        file.inter_rack_gib_per_s,
        absent,
        tuple(file.price_per_gpu_hour.items()),
    )
    if not cluster.gpus:
        got = cluster.usable_note() or f"{len(file.nodes)} nodes"
        raise ClusterError("no usable GPU", got=got, way_out="check `excluded`, `state`, `held_by` and `mig`")
    return cluster


def uniform_cluster(
    gpus: int,
    gpu_class: str,
    memory_mib: float,
    gpus_per_node: int = 8,
    *,
    inter_node_gib_per_s: float | Literal["assumed"] | None = "assumed",
) -> Cluster:
    """Build `gpus` equal GPUs in nodes of `gpus_per_node`; the last node holds what is left over.

    `memory_mib` is the measured total of a GPU. CPU cores and host memory are assumed in
    proportion to the GPUs, and the bandwidth between nodes, as the file of the GPU class says
    (H200: 24 cores and 256 GiB each, 46.6 GiB/s); the cluster's name says so. The
    bandwidth within a node is that of the profiles.
    """
    if gpus < 1 or gpus_per_node < 1:
        raise ClusterError(
            "a cluster needs GPUs", got=f"{gpus} GPUs, {gpus_per_node} per node", allowed="≥ 1"
        )
    node = hardware.gpu_class(gpu_class).node
    if inter_node_gib_per_s == "assumed":
        inter_node_gib_per_s = node.inter_node_gib_per_s
    nodes = []
    for first in range(0, gpus, gpus_per_node):
        size = min(gpus_per_node, gpus - first)
        name = f"node{first // gpus_per_node}"
        cards = tuple(Gpu(GpuId(name, index), gpu_class, memory_mib) for index in range(size))
        cores, host = node.cpu_cores_per_gpu * size, node.host_memory_mib_per_gpu * size
        nodes.append(Node(name, cards, cpu_cores=cores, host_memory_mib=host))
    name = f"{gpus}-{gpu_class}-assumed"
    return Cluster(name, tuple(nodes), None, inter_node_gib_per_s)


def resolve_gpu(cluster: Cluster, text: str) -> GpuId:
    """Find the GPU that `node:index`, a UUID or the unique beginning of a UUID names."""
    node, colon, index = text.rpartition(":")
    if colon and index.isdecimal() and GpuId(node, int(index)) in cluster.gpus:
        return GpuId(node, int(index))
    matches = [gpu for gpu in cluster.gpus.values() if gpu.uuid and text and gpu.uuid.startswith(text)]
    exact = [gpu for gpu in matches if gpu.uuid == text]
    if len(exact or matches) == 1:
        return (exact or matches)[0].id
    gone = [gpu for gpu in cluster.absent if str(gpu.id) == text]
    if gone:
        raise ClusterError(
            f"GPU {text} cannot be used: {gone[0].why}",
            got=text,
            allowed=cluster.usable_note(),
            way_out="name another GPU, or change its entry in the cluster file once it is free",
        )
    if matches:
        named = ", ".join(str(gpu.id) for gpu in matches)
        raise ClusterError("more than one GPU begins so", got=text, allowed=f"one of {named}")
    raise ClusterError(
        "no such usable GPU",
        got=text,
        allowed="node:index, a UUID or its unique beginning",
        way_out="check the name, and that neither the GPU nor its node is excluded",
    )


def _node(spec: NodeSpec, measured_mib: Mapping[str, float]) -> Node:
    if (spec.gpu_count is None) == (not spec.gpus):
        raise ClusterError(f"node {spec.id} needs either gpu_count or gpus", allowed="exactly one of them")
    cards = _cards(spec)
    _refuse_repeats(f"GPU index on node {spec.id}", [str(card.index) for card in cards])
    return Node(
        spec.id,
        tuple(
            gpu
            for card in sorted(cards, key=lambda card: card.index)
            if _absence(card) is None
            for gpu in _with_seats(_gpu(spec, card, measured_mib), card.shared)
        ),
        spec.address,
        spec.cpu_cores,
        spec.host_memory_mib,
        spec.port_first,
        spec.port_last,
        spec.nvlink_domain,
        spec.rack,
    )


def _cards(spec: NodeSpec) -> tuple[GpuSpec, ...]:
    return spec.gpus or tuple(GpuSpec(index=index) for index in range(spec.gpu_count or 0))


def _absent(spec: NodeSpec) -> Iterable[AbsentGpu]:
    for card in _cards(spec):
        why = _node_absence(spec) or _absence(card)
        if why is not None:
            yield AbsentGpu(GpuId(spec.id, card.index), spec.gpu_class, why)


def _node_absence(spec: NodeSpec) -> str | None:
    return _why(spec.excluded, spec.state, spec.held_by)


def _absence(card: GpuSpec) -> str | None:
    """Return why a GPU may not be used, None when it may; of several reasons the holder's name counts."""
    if card.mig:
        return "left out because MIG is on"
    return _why(card.excluded, card.state, card.held_by)


def _why(excluded: bool, state: str, held_by: str | None) -> str | None:
    if held_by is not None:
        return f"held by {held_by}"
    if state != "ready":
        return state
    return "excluded" if excluded else None


def _with_seats(gpu: Gpu, shared: bool) -> tuple[Gpu, ...]:
    """Return a GPU, or the seats on a shared one, each with its part of the memory."""
    if not shared:
        return (gpu,)
    node, device = gpu.id.node, gpu.id.index
    name, memory = seat_class(gpu.gpu_class), gpu.memory_mib / SEATS
    return tuple(
        Gpu(GpuId(node, seat_index(device, seat)), name, memory, gpu.uuid, device)
        for seat in range(1, SEATS + 1)
    )


def _gpu(node: NodeSpec, card: GpuSpec, measured_mib: Mapping[str, float]) -> Gpu:
    memory = card.memory_mib if card.memory_mib is not None else node.gpu_memory_mib
    if memory is None:
        memory = measured_mib.get(node.gpu_class)
    if memory is None:
        raise ClusterError(
            f"the memory of GPU {card.index} on node {node.id} is not given",
            allowed="memory_mib of the GPU or gpu_memory_mib of the node, in MiB",
            way_out=_class_meant(node.gpu_class, measured_mib)
            or "read it with nvidia-smi --query-gpu=memory.total --format=csv",
        )
    if card.uuid is not None and card.uuid.startswith("MIG-"):
        raise ClusterError(
            f"GPU {card.index} on node {node.id} is a MIG instance, not a whole GPU",
            got=card.uuid,
            way_out="list the whole GPU with `mig: true`, which leaves it out, or switch MIG off",
        )
    return Gpu(GpuId(node.id, card.index), node.gpu_class, memory, card.uuid)


def _class_meant(gpu_class: str, measured_mib: Mapping[str, float]) -> str | None:
    """Suggest a class whose memory is known: a misspelt one is the commonest reason not to know it."""
    near = did_you_mean(gpu_class, measured_mib)
    return None if near is None else f"gpu_class {gpu_class} was not measured: {near}"


def _refuse_repeats(what: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ClusterError(f"the same {what} is listed {count} times", got=name)

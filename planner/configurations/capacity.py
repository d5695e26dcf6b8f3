"""How many blocks of GPUs a cluster can hold, by GPU class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from libra_plan.models.topology import Cluster, GpuId

__all__ = ["ClassCapacity", "block_rooms", "capacities", "replicas_per_block"]


@dataclass(frozen=True)
class ClassCapacity:
    """The usable GPUs of one class: number, smallest memory (MiB) and how many each node has.

    `node_gpus` lists usable GPUs per node, `spans` the set of nodes (NVLink domain) each of them is
    in, `span_of` the same by node id; `full_node_gpus` is the size of the class's largest node, the
    unit in which a replica may span the nodes of one set.
    """

    gpu_class: str
    gpus: int
    memory_mib: float
    node_gpus: tuple[int, ...]
    full_node_gpus: int
    spans: tuple[str, ...]
    span_of: Mapping[str, str] = field(compare=False, repr=False)
    _rooms: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    def rooms(self, block_gpus: int) -> int:
        """Count how many blocks of one size fit when nothing else is placed."""
        if block_gpus not in self._rooms:
            self._rooms[block_gpus] = block_rooms(self.node_gpus, block_gpus, self.full_node_gpus, self.spans)
        return self._rooms[block_gpus]


def block_rooms(
    node_gpus: Sequence[int], block_gpus: int, full_node_gpus: int, spans: Sequence[str] | None = None
) -> int:
    """Count blocks of `block_gpus` that nodes with `node_gpus` free GPUs can hold.

    A block larger than a node takes whole nodes of one span (None: all are one), and fits only when it fills
    them.
    """
    if block_gpus <= full_node_gpus:
        return sum(free // block_gpus for free in node_gpus)
    if block_gpus % full_node_gpus:
        return 0
    of = spans if spans is not None else [""] * len(node_gpus)
    whole = Counter(span for free, span in zip(node_gpus, of, strict=True) if free == full_node_gpus)
    return sum(nodes // (block_gpus // full_node_gpus) for nodes in whole.values())


def replicas_per_block(block_gpus: int, replica_gpus: int, full_node_gpus: int) -> int:
    """Count replicas that one block holds without a replica straddling a node it does not fill."""
    if block_gpus <= full_node_gpus:
        return block_gpus // replica_gpus
    if replica_gpus > full_node_gpus:
        return block_gpus // replica_gpus if replica_gpus % full_node_gpus == 0 else 0
    return block_gpus // full_node_gpus * (full_node_gpus // replica_gpus)


def capacities(cluster: Cluster, excluded: frozenset[GpuId] = frozenset()) -> dict[str, ClassCapacity]:
    """Describe every GPU class of a cluster, leaving out excluded GPUs."""
    found: dict[str, list[int]] = {}
    memory: dict[str, float] = {}
    spans: dict[str, list[str]] = {}
    for node in cluster.nodes:
        for gpu_class in dict.fromkeys(gpu.gpu_class for gpu in node.gpus):
            of_class = [gpu for gpu in node.gpus if gpu.gpu_class == gpu_class]
            usable = [gpu for gpu in of_class if gpu.id not in excluded]
            found.setdefault(gpu_class, []).append(len(usable))
            spans.setdefault(gpu_class, []).append(cluster.span_of[node.id])
            least = min((gpu.memory_mib for gpu in of_class), default=float("inf"))
            memory[gpu_class] = min(memory.get(gpu_class, float("inf")), least)
    return {
        name: ClassCapacity(
            name,
            sum(counts),
            memory[name],
            tuple(counts),
            cluster.full_node_gpus[name],
            tuple(spans[name]),
            cluster.span_of,
        )
        for name, counts in found.items()
    }

"""What a cluster offers to blocks of GPUs, class by class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from libra_plan.models.topology import Cluster, GpuId

__all__ = ["ClassCapacity", "block_rooms", "blocks_around", "capacities", "replicas_per_block"]


@dataclass(frozen=True)
class ClassCapacity:
    """The usable GPUs of one class: number, smallest memory (MiB) and how many each node has.

    `node_gpus` lists usable GPUs per node; `full_node_gpus` is the size of the class's largest
    node, the unit in which a replica may span nodes.
    """

    gpu_class: str
    gpus: int
    memory_mib: float
    node_gpus: tuple[int, ...]
    full_node_gpus: int
    _rooms: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    def rooms(self, block_gpus: int) -> int:
        """Count how many blocks of one size fit when nothing else is placed."""
        if block_gpus not in self._rooms:
            self._rooms[block_gpus] = block_rooms(self.node_gpus, block_gpus, self.full_node_gpus)
        return self._rooms[block_gpus]


def block_rooms(node_gpus: Iterable[int], block_gpus: int, full_node_gpus: int) -> int:
    """Count blocks of `block_gpus` that nodes with `node_gpus` free GPUs can hold.

    A block larger than a node takes whole nodes, and fits only when it fills them.
    """
    if block_gpus <= full_node_gpus:
        return sum(free // block_gpus for free in node_gpus)
    if block_gpus % full_node_gpus:
        return 0
    whole = sum(1 for free in node_gpus if free == full_node_gpus)
    return whole // (block_gpus // full_node_gpus)


def replicas_per_block(block_gpus: int, replica_gpus: int, full_node_gpus: int) -> int:
    """Count replicas that one block holds without a replica straddling a node it does not fill."""
    if block_gpus <= full_node_gpus:
        return block_gpus // replica_gpus
    if replica_gpus > full_node_gpus:
        return block_gpus // replica_gpus if replica_gpus % full_node_gpus == 0 else 0
    return block_gpus // full_node_gpus * (full_node_gpus // replica_gpus)


@lru_cache(maxsize=100_000)
def blocks_around(blocks: tuple[tuple[int, int], ...], outer_gpus: int, full_node_gpus: int) -> int | None:
    """Count blocks of `outer_gpus` that hold smaller ones, (size, number) each; None if one cannot be held.

    Sizes that divide each other fill what is left of opened blocks, the largest first, which needs
    the fewest. Other sizes are tried in every way.
    """
    node = min(outer_gpus, full_node_gpus)
    sizes = sorted((size for size, number in blocks if number), reverse=True)
    if any(size > node and size % full_node_gpus for size in [*sizes, outer_gpus]) or outer_gpus < sizes[0]:
        return None
    gpus = sum(size * number for size, number in blocks)
    if all(larger % smaller == 0 for larger, smaller in pairwise([outer_gpus, node, *sizes])):
        return -(-gpus // outer_gpus)
    items = tuple(size for size in sizes for _ in range(dict(blocks)[size]))
    number = -(-gpus // outer_gpus)
    while not _pack(items, ((node,) * (outer_gpus // node),) * number, node):
        number += 1
    return number


@lru_cache(maxsize=100_000)
def _pack(items: tuple[int, ...], bins: tuple[tuple[int, ...], ...], node: int) -> bool:
    """Tell whether items, large ones first, fit in bins of nodes; equal bins are tried once."""
    if not items:
        return True
    for at, bin_ in enumerate(bins):
        if bin_ in bins[:at]:
            continue
        for left in _after(bin_, items[0], node):
            if _pack(items[1:], tuple(sorted((*bins[:at], left, *bins[at + 1 :]))), node):
                return True
    return False


def _after(bin_: tuple[int, ...], size: int, node: int) -> Iterator[tuple[int, ...]]:
    """List what is left of a bin when a block is taken from one of its nodes, or from whole ones."""
    if size > node:
        whole = size // node
        if bin_[-whole:].count(node) == whole:
            yield tuple(sorted((*bin_[:-whole], *(0,) * whole)))
        return
    for at, free in enumerate(bin_):
        if free >= size and free not in bin_[:at]:
            yield tuple(sorted((*bin_[:at], free - size, *bin_[at + 1 :])))


def capacities(cluster: Cluster, excluded: frozenset[GpuId] = frozenset()) -> dict[str, ClassCapacity]:
    """Describe every GPU class of a cluster, leaving out excluded GPUs."""
    found: dict[str, list[int]] = {}
    memory: dict[str, float] = {}
    full: dict[str, int] = {}
    for node in cluster.nodes:
        for gpu_class in dict.fromkeys(gpu.gpu_class for gpu in node.gpus):
            of_class = [gpu for gpu in node.gpus if gpu.gpu_class == gpu_class]
            full[gpu_class] = max(full.get(gpu_class, 0), len(of_class))
            usable = [gpu for gpu in of_class if gpu.id not in excluded]
            found.setdefault(gpu_class, []).append(len(usable))
            least = min((gpu.memory_mib for gpu in of_class), default=float("inf"))
            memory[gpu_class] = min(memory.get(gpu_class, float("inf")), least)
    return {
        name: ClassCapacity(name, sum(counts), memory[name], tuple(counts), full[name])
        for name, counts in found.items()
    }

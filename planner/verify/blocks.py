"""How many blocks of GPUs an empty cluster has, and how many a role needs; for the verifier.

A block is a set of GPUs of one class that no replica straddles: GPUs of one node, or whole nodes of one
NVLink domain. Nothing here is used to make a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.problem import Role, StageOption

__all__ = [
    "Inventory",
    "bins_needed",
    "blocks_needed",
    "gpus_in_blocks",
    "node_sizes",
    "per_block",
    "replica_sizes",
]


@dataclass(frozen=True)
class Inventory:
    """The usable GPUs of a cluster by class and node, read once for many questions."""

    cluster: Cluster
    _rooms: dict[tuple[str, int], int] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def full_node_gpus(self) -> dict[str, int]:
        """GPUs of the largest node of each class, including those that others hold."""
        return node_sizes(self.cluster)

    @cached_property
    def gpus(self) -> dict[str, int]:
        """Usable GPUs of each class."""
        return dict(Counter(gpu.gpu_class for gpu in self.cluster.gpus.values()))

    @cached_property
    def memory_mib(self) -> dict[str, float]:
        """Memory of the smallest usable GPU of each class, MiB."""
        least: dict[str, float] = {}
        for gpu in self.cluster.gpus.values():
            least[gpu.gpu_class] = min(gpu.memory_mib, least.get(gpu.gpu_class, gpu.memory_mib))
        return least

    @cached_property
    def _nodes(self) -> dict[str, list[tuple[str, int]]]:
        """For each class (domain, usable GPUs) of every node that has any."""
        found: dict[str, list[tuple[str, int]]] = {}
        for node in self.cluster.nodes:
            for gpu_class, number in Counter(gpu.gpu_class for gpu in node.gpus).items():
                found.setdefault(gpu_class, []).append((self._domain_of[node.id], number))
        return found

    @cached_property
    def _domain_of(self) -> dict[str, str]:
        """The set of nodes that one replica may span: any, or those of one domain where any is named."""
        named = any(node.nvlink_domain is not None for node in self.cluster.nodes)
        return {
            node.id: "all"
            if not named
            else f"d:{node.nvlink_domain}"
            if node.nvlink_domain is not None
            else f"n:{node.id}"
            for node in self.cluster.nodes
        }

    def room(self, gpu_class: str, block: int) -> int:
        """Return how many blocks of one size the empty cluster holds."""
        key = (gpu_class, block)
        if key not in self._rooms:
            whole = self.full_node_gpus.get(gpu_class, 0)
            self._rooms[key] = _room(self._nodes.get(gpu_class, []), whole, block)
        return self._rooms[key]

    def covers(self, role: Role, option: StageOption) -> bool:
        """Whether the replicas cover the role's pinned GPUs exactly, none cut by a node it does not fill."""
        if option.mix or option.gpus != len(role.pinned_gpus):
            return False
        size, node = option.layout.gpus_per_replica, self.full_node_gpus.get(option.gpu_class, 0)
        here = Counter(gpu.node for gpu in role.pinned_gpus)
        if size <= node:
            return all(number % size == 0 for number in here.values())
        of_domain = Counter(self._domain_of[gpu.node] for gpu in role.pinned_gpus)
        filled = all(number == node for number in here.values())
        return filled and all(number % size == 0 for number in of_domain.values())

    def use_of_gpus(self, gpus: Sequence[GpuId], gpu_class: str, block: int) -> int:
        """Return how many of these GPUs the blocks of one size take that fit in them."""
        whole = self.full_node_gpus.get(gpu_class, 0)
        known = self.cluster.gpus
        here = Counter(gpu.node for gpu in gpus if known[gpu].gpu_class == gpu_class)
        nodes = [(self._domain_of[node], number) for node, number in here.items()]
        return block * _room(nodes, whole, block)


def _room(nodes: Sequence[tuple[str, int]], whole: int, block: int) -> int:
    if block <= whole:
        return sum(gpus // block for _, gpus in nodes)
    if not whole or block % whole:
        return 0
    full = Counter(domain for domain, gpus in nodes if gpus == whole)
    return sum(number // (block // whole) for number in full.values())


def node_sizes(cluster: Cluster) -> dict[str, int]:
    """Return the GPUs of the largest node of each class; what others hold there is part of it."""
    usable = [(gpu.gpu_class, gpu.id.node) for node in cluster.nodes for gpu in node.gpus]
    absent = [(gpu.gpu_class, gpu.id.node) for gpu in cluster.absent]
    sizes: dict[str, int] = {}
    for (gpu_class, _), number in Counter(usable + absent).items():
        sizes[gpu_class] = max(number, sizes.get(gpu_class, 0))
    return sizes


def replica_sizes(option: StageOption) -> list[int]:
    """Return the GPUs of every replica."""
    return [kind.layout.gpus_per_replica for kind in option.mix] or [
        option.layout.gpus_per_replica
    ] * option.replicas


def blocks_needed(node: int, option: StageOption, block: int) -> int:
    """Return how many blocks hold all replicas of a role, none of which may straddle two nodes."""
    if option.mix:
        return bins_needed(tuple(sorted(replica_sizes(option), reverse=True)), block, node)
    return -(-option.replicas // per_block(node, option.layout.gpus_per_replica, block))


def per_block(node: int, size: int, block: int) -> int:
    """Return how many smaller blocks of one size fit in a block."""
    return block // size if block <= node or size > node else (block // node) * (node // size)


def gpus_in_blocks(node: int, size: int, at_least: int) -> int:
    """Return how many GPUs of a block lie in whole blocks of `at_least` GPUs."""
    if size < at_least or (at_least > node and at_least % node):
        return 0
    return at_least * per_block(node, at_least, size)


@lru_cache(maxsize=65536)
def bins_needed(sizes: tuple[int, ...], block: int, node: int) -> int:
    """Return how many blocks hold smaller ones (largest first), none of which is cut by a node."""
    if _nested(frozenset(sizes) | {min(block, node)}):
        return -(-sum(sizes) // block)
    one = (block,) if block <= node else (node,) * (block // node)
    number = 1
    while not _fit(sizes, (one,) * number):
        number += 1
    return number


def _nested(sizes: frozenset[int]) -> bool:
    """Return whether every size divides the next larger one; then only the number of GPUs counts."""
    ordered = sorted(sizes)
    return all(larger % smaller == 0 for smaller, larger in pairwise(ordered))


def _fit(sizes: tuple[int, ...], bins: tuple[tuple[int, ...], ...]) -> bool:
    if not sizes:
        return True
    return any(
        _fit(sizes[1:], tuple(sorted((*bins[:at], left, *bins[at + 1 :]))))
        for at, nodes in enumerate(bins)
        if nodes not in bins[:at]
        for left in _without(nodes, sizes[0])
    )


def _without(nodes: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    """List what is left of a block's nodes once a smaller block is taken from one, or from several whole."""
    found = [
        tuple(sorted((*nodes[:at], free - size, *nodes[at + 1 :])))
        for at, free in enumerate(nodes)
        if free >= size and free not in nodes[:at]
    ]
    count = next((n for n in range(2, len(nodes) + 1) if n * max(nodes) == size), 0)
    if count and nodes[-count] == max(nodes):
        found.append((*(0,) * count, *nodes[:-count]))
    return found

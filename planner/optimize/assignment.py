"""Input and result of placement: blocks and workers, and the nodes they go to."""

from __future__ import annotations

from dataclasses import dataclass

from libra_plan.models.topology import GpuId, Node

__all__ = ["CpuNeed", "Item", "NodeAssignment", "UndecidedError", "gpus_of_class"]


class UndecidedError(Exception):
    """The search for a placement ended before one was found or proven not to exist."""


@dataclass(frozen=True, slots=True)
class Item:
    """Equal blocks of one pool of one task, wherever they go.

    `pinned`: GPUs the pool must contain; `excluded`: GPUs it must not. `liked`: GPUs the task holds
    now, which are preferred.
    """

    task: str
    pool: int | None
    gpu_class: str
    block_gpus: int
    blocks: int
    cpu_cores_per_gpu: float
    host_memory_mib_per_gpu: float
    pinned: frozenset[GpuId] = frozenset()
    excluded: frozenset[GpuId] = frozenset()
    liked: frozenset[GpuId] = frozenset()

    @property
    def by_id(self) -> bool:
        """Return whether particular GPUs matter."""
        return bool(self.pinned or self.excluded)


@dataclass(frozen=True, slots=True)
class CpuNeed:
    """Equal workers of a CPU-only role, wherever they go."""

    task: str
    role: str
    workers: int
    cpu_cores_per_worker: float
    host_memory_mib_per_worker: float


@dataclass(frozen=True, slots=True)
class NodeAssignment:
    """Blocks of item i on a node, whole nodes of item i, GPUs of items placed by id, workers."""

    blocks: dict[tuple[int, str], int]
    whole_nodes: dict[int, tuple[str, ...]]
    gpus: dict[int, frozenset[GpuId]]
    workers: dict[tuple[int, str], int]


def gpus_of_class(node: Node, gpu_class: str) -> int:
    """Count a node's usable GPUs of one class."""
    return sum(1 for gpu in node.gpus if gpu.gpu_class == gpu_class)

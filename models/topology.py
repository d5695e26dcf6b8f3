"""The cluster: nodes, their GPUs and what else a node has to give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Cluster", "Gpu", "GpuId", "Node"]


@dataclass(frozen=True, slots=True, order=True)
class GpuId:
    """Name a GPU by node and index; the UUID, where known, proves it is still the same card."""

    node: str
    index: int

    def __str__(self) -> str:
        return f"{self.node}:{self.index}"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `gpu_class` is the key profiles are measured for (say `h200_sxm`); memory in MiB."""

    id: GpuId
    gpu_class: str
    memory_mib: float
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node: the GPUs the planner may use, CPU cores, host memory and the ports it may hand out.

    `gpus` leaves out lost, drained and foreign GPUs. `cpu_cores` and `host_memory_mib` are None
    when unknown; a task that asks for either is then refused, not assumed to fit.
    """

    id: str
    gpus: tuple[Gpu, ...]
    address: str | None = None
    cpu_cores: float | None = None
    host_memory_mib: float | None = None
    port_first: int = 24000
    port_last: int = 24999


@dataclass(frozen=True)
class Cluster:
    """The nodes, in a stable order, and the bandwidth between them (None: unknown)."""

    name: str
    nodes: tuple[Node, ...]
    intra_node_gib_per_s: float | None = None
    inter_node_gib_per_s: float | None = None

    @cached_property
    def gpus(self) -> dict[GpuId, Gpu]:
        """Map every usable GPU by id, in (node, index) order as the nodes are listed."""
        return {gpu.id: gpu for node in self.nodes for gpu in node.gpus}

    @cached_property
    def node_of(self) -> dict[str, Node]:
        """Map nodes by id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def gpu_classes(self) -> tuple[str, ...]:
        """List the GPU classes present, each once, in node order."""
        return tuple(dict.fromkeys(gpu.gpu_class for gpu in self.gpus.values()))

    def memory_mib(self, gpu_class: str) -> float:
        """Give the memory a plan may count on for a class: that of its smallest GPU, MiB."""
        return min(gpu.memory_mib for gpu in self.gpus.values() if gpu.gpu_class == gpu_class)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

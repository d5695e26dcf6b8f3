"""The cluster: nodes, their GPUs, the links between them, and seats on shared GPUs.

Two processes on one H200 time-slice: each keeps 0.45–0.53 of its solo rate, both together 0.91–0.97
of one GPU (ten pairs of training, decoding and scoring, in `switching.yaml`). A seat therefore makes
nothing faster; it lets two roles that work little share a GPU. Each seat has half of the memory, the
contexts of the processes included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from libra_plan.models.quantities import Estimate, Origin, weakest
from libra_plan.profiles.schema import SharedRate

__all__ = [
    "SEAT",
    "SEATS",
    "AbsentGpu",
    "Cluster",
    "Gpu",
    "GpuId",
    "Node",
    "on_seat",
    "seat_class",
    "seat_index",
    "whole_class",
]


@dataclass(frozen=True, slots=True, order=True)
class GpuId:
    """Name a GPU by node and index; the UUID, where known, proves it is still the same card."""

    node: str
    index: int

    def __str__(self) -> str:
        return f"{self.node}:{self.index}"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `gpu_class` is the key profiles are measured for (say `h200_sxm`); memory in MiB.

    A seat on a shared GPU is one of its own, with its own index and class; `device` is then the index
    of the GPU that it is on.
    """

    id: GpuId
    gpu_class: str
    memory_mib: float
    uuid: str | None = None
    device: int | None = None


@dataclass(frozen=True, slots=True)
class AbsentGpu:
    """A GPU of the cluster that no plan may use, and why: `held by alice`, `drained`, `lost`, ..."""

    id: GpuId
    gpu_class: str
    why: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node: the GPUs the planner may use, CPU cores, host memory and the ports it may hand out.

    `gpus` leaves out lost, drained and foreign GPUs. `cpu_cores` and `host_memory_mib` are None
    when unknown; a task that asks for either is then refused, not assumed to fit. `nvlink_domain`
    and `rack` say which nodes belong together, None where the cluster does not.
    """

    id: str
    gpus: tuple[Gpu, ...]
    address: str | None = None
    cpu_cores: float | None = None
    host_memory_mib: float | None = None
    port_first: int = 24000
    port_last: int = 24999
    nvlink_domain: str | None = None
    rack: str | None = None


@dataclass(frozen=True)
class Cluster:
    """The nodes, in a stable order, and the bandwidth between them (None: unknown).

    `inter_rack_gib_per_s` is that between nodes of different racks, None when it is the same.
    `price_per_gpu_hour` lists (GPU class, price) where a price is known, in any one currency.
    """

    name: str
    nodes: tuple[Node, ...]
    intra_node_gib_per_s: float | None = None
    inter_node_gib_per_s: float | None = None
    inter_rack_gib_per_s: float | None = None
    absent: tuple[AbsentGpu, ...] = ()
    price_per_gpu_hour: tuple[tuple[str, float], ...] = ()

    @cached_property
    def gpus(self) -> dict[GpuId, Gpu]:
        """Map every usable GPU by id, in (node, index) order as the nodes are listed."""
        return {gpu.id: gpu for node in self.nodes for gpu in node.gpus}

    @cached_property
    def node_of(self) -> dict[str, Node]:
        """Map nodes by id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def order_of(self) -> dict[str, int]:
        """Map nodes to their place in the listed order."""
        return {node.id: at for at, node in enumerate(self.nodes)}

    @cached_property
    def full_node_gpus(self) -> dict[str, int]:
        """Map GPU classes to the number of GPUs in their largest node, absent ones counted.

        What others hold is still part of its node: eight free GPUs on four half-held nodes do not
        make whole nodes.
        """
        usable = [(gpu.id.node, gpu.gpu_class) for gpu in self.gpus.values()]
        sizes = Counter([*usable, *((gpu.id.node, gpu.gpu_class) for gpu in self.absent)])
        full: dict[str, int] = {}
        for (_, name), number in sizes.items():
            full[name] = max(full.get(name, 0), number)
        return full

    @cached_property
    def gpu_classes(self) -> tuple[str, ...]:
        """List the GPU classes present, each once, in node order."""
        return tuple(dict.fromkeys(gpu.gpu_class for gpu in self.gpus.values()))

    @cached_property
    def span_of(self) -> dict[str, str]:
        """Map each node to the set of nodes that one replica may span: its NVLink domain.

        Without any domain in the cluster all nodes are one set; with some, a node without one is alone.
        """
        told = any(node.nvlink_domain for node in self.nodes)
        if not told:
            return dict.fromkeys(self.node_of, "")
        return {
            node.id: f"domain {node.nvlink_domain}" if node.nvlink_domain else f"node {node.id}"
            for node in self.nodes
        }

    @cached_property
    def racks(self) -> tuple[str, ...]:
        """List the racks that are named, each once, in node order."""
        return tuple(dict.fromkeys(node.rack for node in self.nodes if node.rack is not None))

    def between_nodes_gib_per_s(self) -> float | None:
        """Return the slowest bandwidth that traffic between nodes may meet, GiB/s.

        That between racks, where it is known and nodes are not all in one: a price must hold
        wherever the task is placed.
        """
        one_rack = len({node.rack for node in self.nodes}) <= 1
        if one_rack or self.inter_rack_gib_per_s is None:
            return self.inter_node_gib_per_s
        return min(self.inter_rack_gib_per_s, self.inter_node_gib_per_s or self.inter_rack_gib_per_s)

    def usable_note(self) -> str:
        """Return how many GPUs are free and who or what has the others: `5 of 8 GPUs are usable; ...`.

        Empty when none is left out.
        """
        if not self.absent:
            return ""
        reasons: dict[str, list[str]] = {}
        for gpu in self.absent:
            reasons.setdefault(gpu.why, []).append(str(gpu.id))
        parts = [f"{len(gpus)} {why} ({_some(gpus)})" for why, gpus in reasons.items()]
        cards = {
            (gpu.id.node, gpu.id.index if gpu.device is None else gpu.device) for gpu in self.gpus.values()
        }
        return f"{len(cards)} of {len(cards) + len(self.absent)} GPUs are usable; {', '.join(parts)}"

    def memory_mib(self, gpu_class: str) -> float:
        """Return the memory a plan may count on for a class: that of its smallest GPU, MiB."""
        return min(gpu.memory_mib for gpu in self.gpus.values() if gpu.gpu_class == gpu_class)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)


def _some(names: list[str], most: int = 4) -> str:
    return ", ".join(names if len(names) <= most else [*names[: most - 1], f"... {names[-1]}"])


SEAT = ".seat"
"""What the class of a seat ends with; seats are a class of their own, as their prices are."""
SEATS = 2
"""Seats of a shared GPU: what was measured."""
_APART = 1000


def seat_class(gpu_class: str) -> str:
    """Name the class of the seats on a GPU."""
    return gpu_class + SEAT


def whole_class(gpu_class: str) -> str:
    """Name the class of the GPU that a seat is on, or the class itself."""
    return gpu_class.removesuffix(SEAT)


def seat_index(device: int, seat: int) -> int:
    """Return the index of a seat among the GPUs of its node: 1007 and 2007 for those of GPU 7."""
    return _APART * seat + device


def on_seat(time_s: Estimate, shared: Sequence[SharedRate]) -> Estimate:
    """Stretch a time measured alone by what two processes leave each other.

    The value counts on a neighbour that always works (median share), `high` on the smallest share
    that was measured, `low` on a neighbour that is idle.
    """
    rates = [rate for pair in shared for rate in (pair.rate_a, pair.rate_b)]
    return replace(
        time_s,
        value=time_s.value / median(rates),
        high=time_s.high / min(rates),
        origin=weakest(time_s.origin, Origin.EXTRAPOLATED),
    )

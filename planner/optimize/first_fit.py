"""Placement by best fit: large blocks first, beside the task's other blocks, on the fullest node.

Of the nodes without a block of the task, one with room for all the rest of it comes first: prices
count on the links inside a node where a role fits in one, and weights are then handed over there.

It finds a placement or gives up; giving up proves nothing, CP-SAT decides then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.optimize.assignment import CpuNeed, Item, NodeAssignment

__all__ = ["first_fit", "splits_racks"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_WHOLE = 1e-9  # of a worker: quotients of cores and MiB are true to less


@dataclass
class _Nodes:
    """The free resources of the nodes, by number: GPUs of each class, cores and host memory."""

    names: list[str]
    gpus: dict[str, Ints]
    cores: Floats
    host_mib: Floats
    spans: list[str]

    def blocks(self, item: Item, block_gpus: int) -> Ints:
        """Count the blocks of so many GPUs that fit on each node."""
        found = self.gpus[item.gpu_class] // block_gpus
        for left, each in (
            (self.cores, item.cpu_cores_per_gpu * block_gpus),
            (self.host_mib, item.host_memory_mib_per_gpu * block_gpus),
        ):
            if each:
                most = np.maximum(np.floor(left / each), 0.0)
                found = np.minimum(found, (most - (most * each > left)).astype(np.int64))
        return found

    def take(self, item: Item, node: int, gpus: int) -> None:
        self.gpus[item.gpu_class][node] -= gpus
        self.cores[node] -= item.cpu_cores_per_gpu * gpus
        self.host_mib[node] -= item.host_memory_mib_per_gpu * gpus


@dataclass
class _Home:
    """Location of a task: its nodes so far, the nodes of its rack, and the GPUs it still wants by class."""

    nodes: set[int]
    near: set[int]
    rest: Counter[str]

    def distance(self, number: int) -> Ints:
        """Rank nodes: those of the task, those of its rack, the others."""
        found = np.full(number, 2, dtype=np.int64)
        found[list(self.near)] = 1
        found[list(self.nodes)] = 0
        return found


def first_fit(
    cluster: Cluster,
    items: Sequence[Item],
    cpu_needs: Sequence[CpuNeed],
    free: Mapping[str, Sequence[GpuId]],
    used_cores: Mapping[str, float],
    used_host_mib: Mapping[str, float],
    stuck: list[tuple[Item, Ints]] | None = None,
) -> NodeAssignment | None:
    """Place items that may go anywhere; None when best fit does not manage or GPUs are named.

    `stuck` is given the item that found no room, and how many GPUs of its class were left on each node.
    """
    if any(item.by_id for item in items):
        return None
    nodes = _nodes(cluster, free, used_cores, used_host_mib)
    of_task: dict[str, list[Item]] = {}
    for item in items:
        of_task.setdefault(item.task, []).append(item)
    homes: dict[str, _Home] = {}
    result = NodeAssignment({}, {}, {}, {})
    for number in sorted(range(len(items)), key=lambda n: (-items[n].block_gpus, n)):
        item = items[number]
        if item.task not in homes:
            homes[item.task] = _home(cluster, of_task[item.task], nodes)
        full = cluster.full_node_gpus[item.gpu_class]
        place = _place_whole_nodes if item.block_gpus > full else _place_blocks
        if not place(number, item, full, nodes, homes[item.task], result):
            if stuck is not None:
                stuck.append((item, nodes.gpus[item.gpu_class]))
            return None
    for number, need in enumerate(cpu_needs):
        if not _place_workers(number, need, nodes, result):
            return None
    return result


def splits_racks(cluster: Cluster, items: Sequence[Item], assigned: NodeAssignment) -> bool:
    """Whether any task is spread over more than one rack."""
    if not cluster.racks:
        return False
    racks: dict[str, set[str | None]] = {}
    places = [*assigned.blocks, *((n, name) for n, names in assigned.whole_nodes.items() for name in names)]
    for number, name in places:
        racks.setdefault(items[number].task, set()).add(cluster.node_of[name].rack)
    return any(len(each) > 1 for each in racks.values())


def _nodes(
    cluster: Cluster,
    free: Mapping[str, Sequence[GpuId]],
    used_cores: Mapping[str, float],
    used_host_mib: Mapping[str, float],
) -> _Nodes:
    gpus = {name: np.zeros(len(cluster.nodes), dtype=np.int64) for name in cluster.gpu_classes}
    known = cluster.gpus
    for number, node in enumerate(cluster):
        for gpu in free[node.id]:
            gpus[known[gpu].gpu_class][number] += 1
    return _Nodes(
        [node.id for node in cluster],
        gpus,
        np.array([(node.cpu_cores or 0.0) - used_cores.get(node.id, 0.0) for node in cluster]),
        np.array([(node.host_memory_mib or 0.0) - used_host_mib.get(node.id, 0.0) for node in cluster]),
        [cluster.span_of[node.id] for node in cluster],
    )


def _home(cluster: Cluster, items: Sequence[Item], nodes: _Nodes) -> _Home:
    """Choose the rack of a task: where most of it is now, else the fullest that has room for all of it."""
    order = cluster.order_of
    held = {order[gpu.node] for item in items for gpu in item.liked if gpu.node in order}
    wanted: Counter[str] = Counter()
    for item in items:
        wanted[item.gpu_class] += item.block_gpus * item.blocks
    if not cluster.racks:
        return _Home(held, set(), wanted)
    members: dict[str | None, list[int]] = {}
    for number, node in enumerate(cluster):
        members.setdefault(node.rack, []).append(number)

    def rank(rack: str | None) -> tuple[float, ...]:
        room = {name: int(nodes.gpus[name][members[rack]].sum()) for name in wanted}
        lacks = sum(max(0, gpus - room[name]) for name, gpus in wanted.items())
        return -len(held.intersection(members[rack])), lacks, sum(room.values())

    return _Home(held, set(members[min(members, key=rank)]), wanted)


def _place_blocks(
    number: int, item: Item, full: int, nodes: _Nodes, home: _Home, result: NodeAssignment
) -> bool:
    """Assign blocks to nodes: the task's, its rack's, those that can take all its rest, then the fullest."""
    left = item.blocks
    while left:
        fits = nodes.blocks(item, item.block_gpus)
        able = np.flatnonzero(fits)
        if not len(able):
            return False
        several = home.rest[item.gpu_class] >= full
        room = nodes.gpus[item.gpu_class][able]
        short = room < min(home.rest[item.gpu_class], full)
        rank = (home.distance(len(fits))[able] * 2 + short) * (full + 1) + room
        if left < len(able):  # no more nodes than blocks are wanted
            nearest = np.flatnonzero(rank <= np.partition(rank, left - 1)[left - 1])
            able, rank = able[nearest], rank[nearest]
        for best in able[np.argsort(rank, kind="stable")].tolist():
            if not left or (several and home.rest[item.gpu_class] < full):
                break  # what is left of the task fits in one node: search again
            here = min(left, int(fits[best]))
            nodes.take(item, best, here * item.block_gpus)
            home.rest[item.gpu_class] -= here * item.block_gpus
            at = (number, nodes.names[best])
            result.blocks[at] = result.blocks.get(at, 0) + here
            home.nodes.add(best)
            left -= here
    return True


def _place_whole_nodes(
    number: int, item: Item, full: int, nodes: _Nodes, home: _Home, result: NodeAssignment
) -> bool:
    """Choose free nodes for blocks larger than one, each block in one NVLink domain."""
    each = item.block_gpus // full
    distance = home.distance(len(nodes.names))
    able = np.flatnonzero(nodes.blocks(item, full))
    empty: dict[str, list[int]] = {}
    for node in able[np.argsort(distance[able], kind="stable")].tolist():
        empty.setdefault(nodes.spans[node], []).append(node)
    chosen: list[int] = []
    for _ in range(item.blocks):
        spans = [span for span in empty.values() if len(span) >= each]
        if not spans:
            return False
        best = min(spans, key=lambda span: (int(distance[span[:each]].sum()), len(span)))
        chosen += best[:each]
        del best[:each]
    for node in chosen:
        nodes.take(item, node, full)
    home.rest[item.gpu_class] -= full * len(chosen)
    home.nodes.update(chosen)
    result.whole_nodes[number] = tuple(nodes.names[node] for node in sorted(chosen))
    return True


def _place_workers(number: int, need: CpuNeed, nodes: _Nodes, result: NodeAssignment) -> bool:
    left = need.workers
    for node in np.argsort(-nodes.cores, kind="stable").tolist():
        fits = [left]
        if need.cpu_cores_per_worker:
            fits.append(int((nodes.cores[node] + _WHOLE) // need.cpu_cores_per_worker))
        if need.host_memory_mib_per_worker:
            fits.append(int((nodes.host_mib[node] + _WHOLE) // need.host_memory_mib_per_worker))
        here = max(0, min(fits))
        if here:
            nodes.cores[node] -= here * need.cpu_cores_per_worker
            nodes.host_mib[node] -= here * need.host_memory_mib_per_worker
            result.workers[number, nodes.names[node]] = here
            left -= here
        if not left:
            return True
    return left == 0

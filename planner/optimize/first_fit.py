"""Placement by best fit: large blocks first, beside the task's other blocks, on the fullest node.

Of the nodes without a block of the task, one with room for all the rest of it comes first: prices
count on the links inside a node where a role fits in one, and weights are then handed over there.

It finds a placement or gives up; giving up proves nothing, CP-SAT decides then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.optimize.assignment import CpuNeed, Item, NodeAssignment

__all__ = ["first_fit", "splits_racks"]


@dataclass(slots=True)
class _Room:
    """What is left on a node."""

    gpus: dict[str, int]
    cores: float
    host_mib: float

    def holds(self, item: Item, gpus: int) -> bool:
        return (
            self.gpus.get(item.gpu_class, 0) >= gpus
            and self.cores >= item.cpu_cores_per_gpu * gpus
            and self.host_mib >= item.host_memory_mib_per_gpu * gpus
        )

    def most(self, item: Item) -> int:
        """Count the blocks of an item that fit."""
        blocks = self.gpus.get(item.gpu_class, 0) // item.block_gpus
        while blocks and not self.holds(item, blocks * item.block_gpus):
            blocks -= 1
        return blocks

    def take(self, item: Item, gpus: int) -> None:
        self.gpus[item.gpu_class] -= gpus
        self.cores -= item.cpu_cores_per_gpu * gpus
        self.host_mib -= item.host_memory_mib_per_gpu * gpus


def first_fit(
    cluster: Cluster,
    items: Sequence[Item],
    cpu_needs: Sequence[CpuNeed],
    free: Mapping[str, Sequence[GpuId]],
    used_cores: Mapping[str, float],
    used_host_mib: Mapping[str, float],
) -> NodeAssignment | None:
    """Place items that may go anywhere; None when best fit does not manage or GPUs are named."""
    if any(item.by_id for item in items):
        return None
    none = dict.fromkeys(cluster.gpu_classes, 0)
    gpu_class = {gpu: each.gpu_class for gpu, each in cluster.gpus.items()}
    rooms = {
        node.id: _Room(
            {**none, **Counter(gpu_class[gpu] for gpu in free[node.id])},
            (node.cpu_cores or 0.0) - used_cores.get(node.id, 0.0),
            (node.host_memory_mib or 0.0) - used_host_mib.get(node.id, 0.0),
        )
        for node in cluster
    }
    result = NodeAssignment({}, {}, {}, {})
    homes: dict[str, _Home] = {}
    of_task: dict[str, list[Item]] = {}
    for item in items:
        of_task.setdefault(item.task, []).append(item)
    for number in sorted(range(len(items)), key=lambda n: (-items[n].block_gpus, n)):
        task = items[number].task
        if task not in homes:
            homes[task] = _home(cluster, of_task[task], rooms)
        if not _place_item(cluster, number, items[number], rooms, homes[task], result):
            return None
    for number, need in enumerate(cpu_needs):
        if not _place_workers(number, need, rooms, result):
            return None
    return result


def splits_racks(cluster: Cluster, items: Sequence[Item], assigned: NodeAssignment) -> bool:
    """Tell whether any task is spread over more than one rack."""
    if not cluster.racks:
        return False
    racks: dict[str, set[str | None]] = {}
    places = [*assigned.blocks, *((n, name) for n, names in assigned.whole_nodes.items() for name in names)]
    for number, name in places:
        racks.setdefault(items[number].task, set()).add(cluster.node_of[name].rack)
    return any(len(each) > 1 for each in racks.values())


@dataclass(slots=True)
class _Home:
    """Where a task is: its nodes so far, the nodes of its rack, and the GPUs it still wants by class."""

    nodes: set[str]
    near: set[str]
    rest: Counter[str]


def _home(cluster: Cluster, items: Sequence[Item], rooms: Mapping[str, _Room]) -> _Home:
    """Choose the rack of a task: where most of it is now, else the fullest that has room for all of it."""
    nodes = {gpu.node for item in items for gpu in item.liked}
    wanted: Counter[str] = Counter()
    for item in items:
        wanted[item.gpu_class] += item.block_gpus * item.blocks
    if not cluster.racks:
        return _Home(nodes, set(), wanted)
    members: dict[str | None, list[str]] = {}
    for node in cluster:
        members.setdefault(node.rack, []).append(node.id)

    def rank(rack: str | None) -> tuple[float, ...]:
        room = {name: sum(rooms[node].gpus[name] for node in members[rack]) for name in wanted}
        lacks = sum(max(0, gpus - room[name]) for name, gpus in wanted.items())
        return -len(nodes.intersection(members[rack])), lacks, sum(room.values())

    return _Home(nodes, set(members[min(members, key=rank)]), wanted)


def _place_item(
    cluster: Cluster,
    number: int,
    item: Item,
    rooms: dict[str, _Room],
    home: _Home,
    result: NodeAssignment,
) -> bool:
    full = cluster.full_node_gpus[item.gpu_class]
    if item.block_gpus > full:
        chosen = _whole_nodes(cluster, item, full, rooms, home)
        if chosen is None:
            return False
        home.rest[item.gpu_class] -= full * len(chosen)
        for name in chosen:
            rooms[name].take(item, full)
        result.whole_nodes[number] = tuple(sorted(chosen, key=list(rooms).index))
        home.nodes.update(chosen)
        return True

    left = item.blocks
    while left:
        fitting = [
            name
            for name, room in rooms.items()
            if room.gpus[item.gpu_class] and room.holds(item, item.block_gpus)
        ]
        if not fitting:
            return False
        several = home.rest[item.gpu_class] >= full
        for best in sorted(fitting, key=_nearest(item, rooms, home, full)):
            if not left or (several and home.rest[item.gpu_class] < full):
                break  # what is left of the task fits in one node: look for that anew
            here = min(left, rooms[best].most(item))
            rooms[best].take(item, here * item.block_gpus)
            home.rest[item.gpu_class] -= here * item.block_gpus
            result.blocks[number, best] = result.blocks.get((number, best), 0) + here
            home.nodes.add(best)
            left -= here
    return True


def _nearest(
    item: Item, rooms: Mapping[str, _Room], home: _Home, full: int
) -> Callable[[str], tuple[bool, bool, bool, int]]:
    """Rank nodes: those the task has, those of its rack, those with room for its rest, the fullest."""
    wanted = min(home.rest[item.gpu_class], full)

    def rank(name: str) -> tuple[bool, bool, bool, int]:
        free = rooms[name].gpus[item.gpu_class]
        return name not in home.nodes, name not in home.near, free < wanted, free

    return rank


def _whole_nodes(
    cluster: Cluster, item: Item, full: int, rooms: Mapping[str, _Room], home: _Home
) -> list[str] | None:
    """Choose free nodes for blocks larger than one, each block in one NVLink domain; None when too few."""
    each = item.block_gpus // full
    empty: dict[str, list[str]] = {}
    for name, room in rooms.items():
        if room.holds(item, full):
            empty.setdefault(cluster.span_of[name], []).append(name)
    for names in empty.values():
        names.sort(key=lambda name: (name not in home.nodes, name not in home.near))
    chosen: list[str] = []
    for _ in range(item.blocks):
        able = [names for names in empty.values() if len(names) >= each]
        if not able:
            return None
        best = min(able, key=lambda names: (_distance(names[:each], home), len(names)))
        chosen += best[:each]
        del best[:each]
    return chosen


def _distance(names: Sequence[str], home: _Home) -> tuple[int, int]:
    return sum(name not in home.nodes for name in names), sum(name not in home.near for name in names)


def _place_workers(number: int, need: CpuNeed, rooms: dict[str, _Room], result: NodeAssignment) -> bool:
    left = need.workers
    for name, room in sorted(rooms.items(), key=lambda entry: -entry[1].cores):
        fits = [left]
        if need.cpu_cores_per_worker:
            fits.append(int((room.cores + 1e-9) // need.cpu_cores_per_worker))
        if need.host_memory_mib_per_worker:
            fits.append(int((room.host_mib + 1e-9) // need.host_memory_mib_per_worker))
        here = max(0, min(fits))
        if here:
            room.cores -= here * need.cpu_cores_per_worker
            room.host_mib -= here * need.host_memory_mib_per_worker
            result.workers[number, name] = here
            left -= here
    return left == 0

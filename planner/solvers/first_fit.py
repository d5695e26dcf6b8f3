"""Placement by best fit: large blocks first, beside the task's other blocks, on the fullest node.

It finds a placement or gives up; giving up proves nothing, CP-SAT decides then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.solvers.assignment import CpuNeed, Item, NodeAssignment, gpus_of_class

__all__ = ["first_fit"]


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
    rooms = {
        node.id: _Room(
            {
                name: sum(cluster.gpus[gpu].gpu_class == name for gpu in free[node.id])
                for name in cluster.gpu_classes
            },
            (node.cpu_cores or 0.0) - used_cores.get(node.id, 0.0),
            (node.host_memory_mib or 0.0) - used_host_mib.get(node.id, 0.0),
        )
        for node in cluster
    }
    result = NodeAssignment({}, {}, {}, {})
    homes: dict[str, set[str]] = {}
    for number in sorted(range(len(items)), key=lambda n: (-items[n].block_gpus, n)):
        if not _place_item(cluster, number, items[number], rooms, homes, result):
            return None
    for number, need in enumerate(cpu_needs):
        if not _place_workers(number, need, rooms, result):
            return None
    return result


def _place_item(
    cluster: Cluster,
    number: int,
    item: Item,
    rooms: dict[str, _Room],
    homes: dict[str, set[str]],
    result: NodeAssignment,
) -> bool:
    full = max(gpus_of_class(node, item.gpu_class) for node in cluster)
    mine = homes.setdefault(item.task, {gpu.node for gpu in item.liked})
    if item.block_gpus > full:
        empty = [name for name, room in rooms.items() if room.holds(item, full)]
        wanted = item.blocks * (item.block_gpus // full)
        if len(empty) < wanted:
            return False
        chosen = sorted(empty, key=lambda name: name not in mine)[:wanted]
        for name in chosen:
            rooms[name].take(item, full)
        result.whole_nodes[number] = tuple(sorted(chosen, key=list(rooms).index))
        mine.update(chosen)
        return True
    for _ in range(item.blocks):
        fitting = [name for name, room in rooms.items() if room.holds(item, item.block_gpus)]
        if not fitting:
            return False
        best = min(fitting, key=lambda name: (name not in mine, rooms[name].gpus[item.gpu_class]))
        rooms[best].take(item, item.block_gpus)
        result.blocks[number, best] = result.blocks.get((number, best), 0) + 1
        mine.add(best)
    return True


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

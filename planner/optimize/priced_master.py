"""The master problem of priced tasks as arrays, without building a configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from libra_plan.models.topology import Cluster
from libra_plan.planner.configurations.capacity import ClassCapacity, capacities
from libra_plan.planner.configurations.needs import gpus_at_least
from libra_plan.planner.optimize.lp_master import Floats, Ints, Master
from libra_plan.planner.optimize.objective import PricedTask
from libra_plan.planner.problem import Task

__all__ = ["master_of_priced"]


def master_of_priced(priced: Sequence[PricedTask], cluster: Cluster) -> Master:
    """Return the cluster's limits, and every configuration's demands and value, as arrays.

    Configurations come in the order of each table, the placements that a task may keep after them.
    """
    rooms = capacities(cluster)
    kinds = _kinds(priced, rooms)
    names = (*(f"gpus:{name}:{size}" for name, size in kinds), "cpu-cores", "host-memory")
    limit = np.array(
        [
            *(float(size * rooms[name].rooms(size)) for name, size in kinds),
            sum(node.cpu_cores or 0.0 for node in cluster),
            sum(node.host_memory_mib or 0.0 for node in cluster),
        ]
    )
    known: dict[int, Floats] = {}  # alike tasks share their drafts
    values: list[Floats] = []
    parts: list[tuple[Ints, Ints, Floats]] = []
    first = [0]
    for each in priced:
        if len(each):
            key = id(each.table.counts)
            if key not in known:
                known[key] = _demands(each, kinds, rooms)
            demand = _with_held(each, known[key], kinds, rooms)
            column, row = np.nonzero(demand)
            parts.append((column + first[-1], row, demand[column, row]))
            values.append(each.values)
        first.append(first[-1] + len(each))
    empty = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))
    column, row, amount = (np.concatenate(each) for each in zip(*(parts or [empty]), strict=True))
    value = np.concatenate(values) if values else np.zeros(0)
    return Master(names, limit, value, np.array(first), row, column, amount)


def _kinds(priced: Sequence[PricedTask], rooms: Mapping[str, ClassCapacity]) -> list[tuple[str, int]]:
    """List the classes and sizes of blocks whose constraint is tighter than that of a smaller size."""
    tables = {id(each.table.counts): each.table for each in priced}
    used = {kind for table in tables.values() for kind in table.kinds}
    found: list[tuple[str, int]] = []
    for name, capacity in rooms.items():
        least = math.inf
        for size in sorted({1} | {size for owner, size in used if owner == name}):
            if size * capacity.rooms(size) < least:
                least = size * capacity.rooms(size)
                found.append((name, size))
    return found


def _demands(
    each: PricedTask, kinds: Sequence[tuple[str, int]], rooms: Mapping[str, ClassCapacity]
) -> Floats:
    """Compute the demand of every configuration on every constraint, without building it."""
    table = each.table
    takes = [
        [
            gpus_at_least([(name, size, 1)], owner, at_least, rooms[owner].full_node_gpus)
            for owner, at_least in kinds
        ]
        for name, size in table.kinds
    ]
    cores, host = _of_cpu_roles(each.task)
    gpus = table.counts @ np.array(takes, dtype=np.float64).reshape(len(table.kinds), len(kinds))
    return np.column_stack((gpus, table.cores + cores, table.host_mib + host))


def _of_cpu_roles(task: Task) -> tuple[float, float]:
    """Return the cores and the host memory (MiB) of a task's CPU-only roles."""
    env = [role for role in task.roles if not role.on_gpu]
    return sum(role.cpu_cores for role in env), sum(role.host_memory_mib for role in env)


def _with_held(
    each: PricedTask, demand: Floats, kinds: Sequence[tuple[str, int]], rooms: Mapping[str, ClassCapacity]
) -> Floats:
    """Add the demands of the placements that a task may keep."""
    if not each.held:
        return demand
    cores, host = _of_cpu_roles(each.task)
    keeps = [
        [
            *(entry.gpus_in_blocks(name, size, rooms[name].full_node_gpus) for name, size in kinds),
            entry.host[0] + cores,
            entry.host[1] + host,
        ]
        for entry in each.held
    ]
    return np.concatenate((demand, np.array(keeps, dtype=np.float64)))

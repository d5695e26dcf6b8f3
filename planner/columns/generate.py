"""Columns of one task: every shape, every pool, merged and freed of what is beaten.

Everything is compared as arrays; a column is only built when somebody asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.topology import Cluster
from libra_plan.planner.columns.arrangements import Shape, shapes_of
from libra_plan.planner.columns.build import build_column
from libra_plan.planner.columns.capacity import ClassCapacity, capacities
from libra_plan.planner.columns.pareto import undominated
from libra_plan.planner.columns.phases import at_least, phase_table
from libra_plan.planner.columns.pools import PoolOption, pool_options
from libra_plan.planner.columns.shared import shared_phases
from libra_plan.planner.plan import Column, MemoryMode
from libra_plan.planner.problem import Task

__all__ = ["ColumnTable", "columns_of"]

Phases = tuple[tuple[PoolOption, ...], ...]
Blocks = tuple[tuple[str, int, int], ...]

_MOST_GPUS = 64  # up to here columns are kept apart wherever a node or a named GPU could tell them apart


@dataclass(frozen=True, slots=True)
class _Draft:
    """A way to run the task before it is a column: phases of pool options on blocks.

    `cores` and `host_mib` are of the whole column; `even` when each of its GPUs takes as much.
    """

    phases: Phases
    blocks: Blocks
    seconds: float
    cores: float
    host_mib: float
    even: bool

    @property
    def gpus(self) -> int:
        """Count the GPUs."""
        return sum(size * number for _, size, number in self.blocks)


@dataclass(frozen=True, slots=True)
class ColumnTable:
    """The columns of a task, fastest first, and how many were beaten and dropped.

    `exact` tells that none of the dropped could be placed where those that beat it cannot. On large
    clusters, CPU cores and host memory of a node and GPUs named one by one are not looked at here.
    """

    task: Task
    drafts: tuple[_Draft, ...]
    dropped: int
    exact: bool

    def __len__(self) -> int:
        return len(self.drafts)

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Give every column's step time, seconds."""
        return np.array([draft.seconds for draft in self.drafts])

    @property
    def gpus(self) -> NDArray[np.int64]:
        """Count every column's GPUs."""
        return np.array([draft.gpus for draft in self.drafts], dtype=np.int64)

    def column(self, number: int) -> Column:
        """Build a column."""
        draft = self.drafts[number]
        return build_column(self.task, draft.phases, draft.blocks)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Build all columns."""
        return tuple(self.column(number) for number in range(len(self)))


def columns_of(task: Task, cluster: Cluster, *, hosts_bind: bool = True) -> ColumnTable:
    """Generate every column of a task that no other one beats.

    A column is dropped when another is as fast, fits wherever it fits, and needs no more CPU cores
    and host memory. Where a pool goes matters for tasks with pinned or excluded GPUs, and when
    nodes may run out of cores or host memory (`hosts_bind`): columns of different shapes are then
    compared only where every GPU takes as much.
    """
    by_id = any(role.pinned_gpus or role.excluded_gpus for role in task.gpu_roles)
    matters = by_id or (hosts_bind and _takes_host(task))
    exact = len(cluster.gpus) <= _MOST_GPUS or not matters
    rooms = capacities(cluster)
    kept: list[_Draft] = []
    made = 0
    for shape in shapes_of(task):
        if by_id and len(shape) > 1:
            continue  # pools of two phases overlap; pins are kept within one phase
        drafts = list(_drafts_of_shape(task, shape, rooms, matters and exact))
        made += len(drafts)
        kept.extend(_undominated(drafts, rooms, task.min_gpus) if by_id and not exact else drafts)
    if matters and exact:
        # uneven columns were compared within their shapes, those of pinned GPUs too
        even = [] if by_id else [draft for draft in kept if draft.even]
        uneven = [draft for draft in kept if by_id or not draft.even]
        kept = [*_undominated(even, rooms, task.min_gpus), *uneven]
    elif not by_id:
        kept = _undominated(kept, rooms, task.min_gpus)
    kept.sort(key=lambda draft: (draft.seconds, draft.gpus, draft.blocks))
    return ColumnTable(task, tuple(kept), made - len(kept), exact)


def _takes_host(task: Task) -> bool:
    return any(
        role.cpu_cores_per_gpu
        or role.host_memory_mib_per_gpu
        or any(option.host_static_mib for option in role.options)
        for role in task.gpu_roles
    )


def _drafts_of_shape(
    task: Task, shape: Shape, rooms: Mapping[str, ClassCapacity], pool_by_pool: bool
) -> Iterator[_Draft]:
    most = sum(each.gpus for each in rooms.values())
    most = most if task.max_gpus is None else min(task.max_gpus, most)
    if len(shape) == 1:
        found = _one_phase(task, shape, rooms, most, pool_by_pool)
    else:
        found = (each for room in rooms.values() for each in _several_phases(task, shape, room, most))
    for phases, blocks, seconds in found:
        draft = _draft(task, phases, blocks, seconds)
        if _has_room(blocks, rooms) and task.min_gpus <= draft.gpus <= most:
            yield draft


def _has_room(blocks: Blocks, rooms: Mapping[str, ClassCapacity]) -> bool:
    taken: Counter[str] = Counter()
    for name, size, number in blocks:
        taken[name] += size * number
        if number > rooms[name].rooms(size):
            return False
    return all(gpus <= rooms[name].gpus for name, gpus in taken.items())


def _options(
    task: Task, pool: tuple[int, ...], rooms: Iterable[ClassCapacity], mode: MemoryMode | None
) -> list[PoolOption]:
    roles = [task.gpu_roles[number] for number in pool]
    fill, least = task.roles_fill_pools, task.min_gpus
    return [
        option
        for capacity in rooms
        for option in pool_options(roles, capacity, between_phases=mode, fill=fill, least_gpus=least)
    ]


def _one_phase(
    task: Task, shape: Shape, rooms: Mapping[str, ClassCapacity], gpus: int, pool_by_pool: bool
) -> Iterator[tuple[Phases, Blocks, float]]:
    """List phases of one-phase columns; each pool may be of another GPU class."""
    options = [_options(task, pool, rooms.values(), None) for pool in shape[0]]
    if not all(options):
        return
    full = {name: each.full_node_gpus for name, each in rooms.items()}
    least = task.min_gpus
    table = phase_table(options, task.coupling, gpus, full, pool_by_pool=pool_by_pool, least_gpus=least)
    seconds = table.time_s(task.coupling)
    for row in range(len(table)):
        numbers = zip(table.kinds, table.blocks[row], strict=True)
        blocks = tuple((name, size, int(number)) for (name, size), number in numbers if number)
        yield (table.pools(row),), blocks, float(seconds[row])


def _several_phases(
    task: Task, shape: Shape, capacity: ClassCapacity, gpus: int
) -> Iterator[tuple[Phases, Blocks, float]]:
    full = {capacity.gpu_class: capacity.full_node_gpus}
    for mode in MemoryMode:
        options = [[_options(task, pool, (capacity,), mode) for pool in pools] for pools in shape]
        if not all(all(each) for each in options):
            continue
        known = [
            phase_table(each, task.coupling, gpus, full, between_phases=mode, least_gpus=task.min_gpus)
            for each in options
        ]
        seconds = [table.time_s(task.coupling) for table in known]
        for block_gpus, number, rows in shared_phases(known, task.coupling, capacity, task.min_gpus):
            phases = tuple(table.pools(row) for table, row in zip(known, rows, strict=True))
            time_s = sum(float(each[row]) for each, row in zip(seconds, rows, strict=True))
            yield phases, ((capacity.gpu_class, block_gpus, number),), time_s


def _draft(task: Task, phases: Phases, blocks: Blocks, seconds: float) -> _Draft:
    each = [[option.pool for option in phase] for phase in phases]
    if len(each) == 1:
        (pools,) = each
        cores = sum(pool.cpu_cores_per_gpu * pool.gpus for pool in pools)
        host = sum(pool.host_memory_mib_per_gpu * pool.gpus for pool in pools)
    else:
        gpus = sum(size * number for _, size, number in blocks)
        cores = gpus * sum(max(pool.cpu_cores_per_gpu for pool in pools) for pools in each)
        host = gpus * sum(max(pool.host_memory_mib_per_gpu for pool in pools) for pools in each)
    even = len(each) > 1 or len({(p.cpu_cores_per_gpu, p.host_memory_mib_per_gpu) for p in each[0]}) == 1
    handover_s = task.sync_s if sum(len(phase) for phase in phases) > 1 else 0.0
    return _Draft(phases, blocks, seconds + handover_s, cores, host, even)


def _undominated(
    drafts: Sequence[_Draft], rooms: Mapping[str, ClassCapacity], least_gpus: int
) -> list[_Draft]:
    """Keep drafts that no other beats in time, blocks of every size, cores and host memory.

    Those of even drafts are compared by the GPU too, since a node may have little for each.
    """
    if not drafts:
        return []
    more = [-min(draft.gpus, least_gpus) for draft in drafts]
    columns = [*_needs(drafts, rooms).T, [draft.seconds for draft in drafts], more]
    measures = [[draft.cores for draft in drafts], [draft.host_mib for draft in drafts]]
    if all(draft.even for draft in drafts):
        measures = [[value / d.gpus for value, d in zip(each, drafts, strict=True)] for each in measures]
    for values in measures:
        if len(set(values)) > 1:
            columns.append(values)
    return [drafts[number] for number in undominated(np.column_stack(columns).astype(np.float64))]


def _needs(drafts: Sequence[_Draft], rooms: Mapping[str, ClassCapacity]) -> NDArray[np.int64]:
    """Measure blocks class by class, shape (drafts, classes × sizes)."""
    kinds = sorted({(name, size) for draft in drafts for name, size, _ in draft.blocks})
    at = {kind: number for number, kind in enumerate(kinds)}
    counts = np.zeros((len(drafts), len(kinds)), dtype=np.int64)
    for row, draft in enumerate(drafts):
        for name, size, number in draft.blocks:
            counts[row, at[name, size]] = number
    return at_least(counts, kinds, {name: each.full_node_gpus for name, each in rooms.items()})

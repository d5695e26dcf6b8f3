"""Columns of one task: every shape, every pool, merged and freed of what is beaten.

Everything is compared as arrays; a column is only built when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.topology import Cluster
from libra_plan.planner.columns.arrangements import Shape, shapes_of
from libra_plan.planner.columns.build import build_column
from libra_plan.planner.columns.capacity import ClassCapacity, capacities
from libra_plan.planner.columns.pareto import undominated
from libra_plan.planner.columns.phases import PhaseTable, at_least, phase_table
from libra_plan.planner.columns.pools import PoolOption, pool_options
from libra_plan.planner.columns.shared import shared_phases
from libra_plan.planner.plan import Column, MemoryMode
from libra_plan.planner.problem import Task

__all__ = ["ColumnTable", "columns_of"]

Phases = tuple[tuple[PoolOption, ...], ...]
Blocks = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A way to run the task before it is a column: phases of pool options on blocks."""

    phases: Phases
    blocks: Blocks
    seconds: float
    cores: float
    host_mib: float


@dataclass(frozen=True, slots=True)
class ColumnTable:
    """The columns of a task, fastest first, and how many were beaten and dropped."""

    task: Task
    drafts: tuple[_Draft, ...]
    dropped: int

    def __len__(self) -> int:
        return len(self.drafts)

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Give every column's step time, seconds."""
        return np.array([draft.seconds for draft in self.drafts])

    @property
    def gpus(self) -> NDArray[np.int64]:
        """Count every column's GPUs."""
        return np.array([_gpus(draft.blocks) for draft in self.drafts], dtype=np.int64)

    def column(self, number: int) -> Column:
        """Build a column."""
        draft = self.drafts[number]
        return build_column(self.task, draft.phases, draft.blocks)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Build all columns."""
        return tuple(self.column(number) for number in range(len(self)))


def columns_of(task: Task, cluster: Cluster) -> ColumnTable:
    """Generate every column of a task that no other one beats.

    A column is dropped when another is as fast, fits wherever it fits, and needs no more CPU cores
    and host memory. Tasks with pinned or excluded GPUs keep the best of every shape, since where a
    pool may go then differs from shape to shape.
    """
    by_id = any(role.pinned_gpus or role.excluded_gpus for role in task.gpu_roles)
    kept: list[_Draft] = []
    made = 0
    for capacity in capacities(cluster).values():
        for shape in shapes_of(task):
            if by_id and len(shape) > 1:
                continue  # pools of two phases overlap; pins are kept within one phase
            drafts = list(_drafts_of_shape(task, shape, capacity))
            made += len(drafts)
            kept.extend(_undominated(drafts) if by_id else drafts)
    if not by_id:
        kept = _undominated(kept)
    kept.sort(key=lambda draft: (draft.seconds, _gpus(draft.blocks), draft.blocks))
    return ColumnTable(task, tuple(kept), made - len(kept))


def _gpus(blocks: Blocks) -> int:
    return sum(size * number for _, size, number in blocks)


def _drafts_of_shape(task: Task, shape: Shape, capacity: ClassCapacity) -> Iterator[_Draft]:
    most = capacity.gpus if task.max_gpus is None else min(task.max_gpus, capacity.gpus)
    found = _one_phase if len(shape) == 1 else _several_phases
    for phases, blocks, seconds in found(task, shape, capacity, most):
        fits = all(capacity.rooms(size) >= number for _, size, number in blocks)
        if fits and task.min_gpus <= _gpus(blocks) <= most:
            yield _draft(task, phases, blocks, seconds)


def _table(
    task: Task,
    pools: tuple[tuple[int, ...], ...],
    capacity: ClassCapacity,
    gpus: int,
    mode: MemoryMode | None,
) -> PhaseTable | None:
    roles = [[task.gpu_roles[number] for number in pool] for pool in pools]
    options = [
        pool_options(members, capacity, between_phases=mode, fill=task.roles_fill_pools) for members in roles
    ]
    return phase_table(options, task.coupling, gpus, mode) if all(options) else None


def _one_phase(
    task: Task, shape: Shape, capacity: ClassCapacity, gpus: int
) -> Iterator[tuple[Phases, Blocks, float]]:
    table = _table(task, shape[0], capacity, gpus, None)
    if table is None:
        return
    seconds = table.time_s(task.coupling)
    for row in range(len(table)):
        numbers = zip(table.sizes, table.blocks[row], strict=True)
        blocks = tuple((capacity.gpu_class, size, int(number)) for size, number in numbers if number)
        yield (table.pools(row),), blocks, float(seconds[row])


def _several_phases(
    task: Task, shape: Shape, capacity: ClassCapacity, gpus: int
) -> Iterator[tuple[Phases, Blocks, float]]:
    for mode in MemoryMode:
        tables = [_table(task, pools, capacity, gpus, mode) for pools in shape]
        known = [table for table in tables if table is not None]
        if len(known) < len(tables):
            continue
        seconds = [table.time_s(task.coupling) for table in known]
        for block_gpus, number, rows in shared_phases(known, task.coupling, capacity):
            phases = tuple(table.pools(row) for table, row in zip(known, rows, strict=True))
            time_s = sum(float(each[row]) for each, row in zip(seconds, rows, strict=True))
            yield phases, ((capacity.gpu_class, block_gpus, number),), time_s


def _draft(task: Task, phases: Phases, blocks: Blocks, seconds: float) -> _Draft:
    if len(phases) == 1:
        pools = [option.pool for option in phases[0]]
        cores = sum(pool.cpu_cores_per_gpu * pool.gpus for pool in pools)
        host = sum(pool.host_memory_mib_per_gpu * pool.gpus for pool in pools)
    else:
        each = [[option.pool for option in phase] for phase in phases]
        gpus = _gpus(blocks)
        cores = gpus * sum(max(pool.cpu_cores_per_gpu for pool in pools) for pools in each)
        host = gpus * sum(max(pool.host_memory_mib_per_gpu for pool in pools) for pools in each)
    handover_s = task.sync_s if sum(len(phase) for phase in phases) > 1 else 0.0
    return _Draft(phases, blocks, seconds + handover_s, cores, host)


def _undominated(drafts: Sequence[_Draft]) -> list[_Draft]:
    """Keep drafts that no other beats in time, blocks of every size, cores and host memory."""
    if not drafts:
        return []
    columns = [*_needs(drafts).T, [draft.seconds for draft in drafts]]
    for values in ([draft.cores for draft in drafts], [draft.host_mib for draft in drafts]):
        if len(set(values)) > 1:
            columns.append(values)
    return [drafts[number] for number in undominated(np.column_stack(columns).astype(np.float64))]


def _needs(drafts: Sequence[_Draft]) -> NDArray[np.int64]:
    """Measure blocks class by class, shape (drafts, classes × sizes)."""
    kinds = sorted({(name, size) for draft in drafts for name, size, _ in draft.blocks})
    at = {kind: number for number, kind in enumerate(kinds)}
    counts = np.zeros((len(drafts), len(kinds)), dtype=np.int64)
    for row, draft in enumerate(drafts):
        for name, size, number in draft.blocks:
            counts[row, at[name, size]] = number
    parts = []
    for name in dict.fromkeys(name for name, _ in kinds):
        mine = [at[kind] for kind in kinds if kind[0] == name]
        parts.append(at_least(counts[:, mine], [size for owner, size in kinds if owner == name]))
    return np.concatenate(parts, axis=1)

"""Generate the configurations of one task: every shape and pool, without dominated ones.

Everything is compared as arrays; a configuration is only built when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.topology import Cluster
from libra_plan.planner.configurations.arrangements import Shape
from libra_plan.planner.configurations.build import build_configuration
from libra_plan.planner.configurations.capacity import ClassCapacity, capacities, replicas_per_block
from libra_plan.planner.configurations.joint import any_shapes_of, members_in_first
from libra_plan.planner.configurations.pareto import pareto_front
from libra_plan.planner.configurations.phases import PhaseTable, at_least, phase_table
from libra_plan.planner.configurations.pools import Kind, PoolOption, PoolTable, pool_options, role_options
from libra_plan.planner.configurations.shared import shared_phases
from libra_plan.planner.plan import Configuration, MemoryMode
from libra_plan.planner.problem import Task

__all__ = ["ConfigurationTable", "configurations_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Phases = tuple[tuple[PoolOption, ...], ...]
Blocks = tuple[tuple[str, int, int], ...]

# Up to here configurations are kept apart wherever a node or a named GPU could tell them apart.
_MOST_COMBINATIONS = 20_000
_MOST_KEPT = 2_000


@dataclass(frozen=True)
class ConfigurationTable:
    """The configurations of a task, fastest first, and how many dominated ones were dropped.

    `counts[row, kind]` are blocks of `kinds`, (GPU class, size) each; `cores` and `host_mib` are of the
    whole configuration, its CPU-only roles left out; it is `even` when each of its GPUs takes as much.
    `phases_of` builds the phases of a row. `exact` tells that none of the dropped could be placed where
    those that beat it cannot. Where that would leave too many, cores and host memory are compared over the
    whole configuration only.
    """

    task: Task
    kinds: tuple[Kind, ...]
    counts: Ints
    seconds: Floats
    cores: Floats
    host_mib: Floats
    even: NDArray[np.bool_]
    phases_of: Callable[[int], Phases]
    dropped: int = 0
    exact: bool = True

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def gpus(self) -> Ints:
        """Return the number of GPUs of every configuration."""
        return self.counts @ np.array([size for _, size in self.kinds], dtype=np.int64)

    def blocks(self, number: int) -> Blocks:
        """Return the blocks of a configuration: GPU class, size, number."""
        counted = zip(self.kinds, self.counts[number].tolist(), strict=True)
        return tuple((name, size, blocks) for (name, size), blocks in counted if blocks)

    def configuration(self, number: int) -> Configuration:
        """Build a configuration."""
        return build_configuration(self.task, self.phases_of(number), self.blocks(number))

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Build all configurations."""
        return tuple(self.configuration(number) for number in range(len(self)))

    def keep(self, rows: NDArray[np.intp]) -> ConfigurationTable:
        """Return the table of some rows, in the order given; the others are dropped."""
        phases_of = self.phases_of
        return replace(
            self,
            counts=self.counts[rows],
            seconds=self.seconds[rows],
            cores=self.cores[rows],
            host_mib=self.host_mib[rows],
            even=self.even[rows],
            phases_of=lambda number: phases_of(int(rows[number])),
            dropped=self.dropped + len(self) - len(rows),
        )


def configurations_of(
    task: Task,
    cluster: Cluster,
    *,
    hosts_bind: bool = True,
    rooms: Mapping[str, ClassCapacity] | None = None,
) -> ConfigurationTable:
    """Generate every configuration of a task that no other one beats.

    A configuration is dropped when another is as fast, fits wherever it fits, and needs no more CPU cores
    and host memory. Where a pool goes matters for tasks with pinned or excluded GPUs, and when
    nodes may run out of cores or host memory (`hosts_bind`): configurations of different shapes are then
    compared only where every GPU takes as much, unless that leaves too many of them. `rooms` are
    the cluster's `capacities`, for callers with many tasks.
    """
    by_id = any(role.pinned_gpus or role.excluded_gpus for role in task.gpu_roles)
    maker = _Maker(task, capacities(cluster) if rooms is None else rooms)
    shapes = [shape for shape in any_shapes_of(task) if len(shape) == 1 or not by_id]
    matters = by_id or (hosts_bind and _takes_host(task))
    if matters and maker.combinations(shapes) <= _MOST_COMBINATIONS:
        found = maker.merged(maker.of_shape(shape, pool_by_pool=True) for shape in shapes)
        # uneven configurations were compared within their shapes, those of named GPUs too
        even = np.flatnonzero(found.even & (not by_id))
        kept = np.concatenate((maker.unbeaten(found, even), np.flatnonzero(~found.even | by_id)))
        if len(kept) <= _MOST_KEPT:
            return _sorted(found.keep(kept))
    each = [maker.of_shape(shape, pool_by_pool=False) for shape in shapes]
    if by_id:  # pools are in other places in every shape
        each = [table.keep(maker.unbeaten(table, np.arange(len(table)))) for table in each]
    found = maker.merged(each)
    if not by_id:
        found = found.keep(maker.unbeaten(found, np.arange(len(found))))
    return replace(_sorted(found), exact=not matters)


def _sorted(table: ConfigurationTable) -> ConfigurationTable:
    return table.keep(np.lexsort((*table.counts.T[::-1], table.gpus, table.seconds)))


def _takes_host(task: Task) -> bool:
    return any(
        role.cpu_cores_per_gpu
        or role.host_memory_mib_per_gpu
        or any(option.host_static_mib or option.offloaded_host_mib for option in role.options)
        for role in task.gpu_roles
    )


class _Maker:
    """Makes the configurations of one task; the options of a pool are made once for all shapes."""

    def __init__(self, task: Task, rooms: Mapping[str, ClassCapacity]) -> None:
        self.task = task
        self.rooms = rooms
        self.full = {name: each.full_node_gpus for name, each in rooms.items()}
        gpus = sum(each.gpus for each in rooms.values())
        self.most = gpus if task.max_gpus is None else min(task.max_gpus, gpus)
        self.roles = [role_options(role, rooms) for role in task.gpu_roles]
        self._pools: dict[tuple[tuple[int, ...], MemoryMode | None], PoolTable] = {}

    def pools(self, pool: tuple[int, ...], mode: MemoryMode | None) -> PoolTable:
        """List the options of a pool; without a mode it has its GPUs to itself."""
        if (pool, mode) not in self._pools:
            members = [self.roles[number] for number in pool]
            self._pools[pool, mode] = pool_options(
                members,
                between_phases=mode,
                fill=self.task.roles_fill_pools,
                least_gpus=self.task.min_gpus,
                apart=members_in_first(self.task, [each.role for each in members]),
            )
        return self._pools[pool, mode]

    def combinations(self, shapes: Sequence[Shape]) -> int:
        """Count the combinations of options of the one-phase shape that has most."""
        one_phase = [shape[0] for shape in shapes if len(shape) == 1]
        counts = (prod(len(self.pools(pool, None)) for pool in pools) for pools in one_phase)
        return max(counts, default=0)

    def of_shape(self, shape: Shape, *, pool_by_pool: bool) -> ConfigurationTable:
        """List the configurations of one shape that there is room for."""
        several = (part for room in self.rooms.values() for part in self._several_phases(shape, room))
        found = self.merged(several) if len(shape) > 1 else self._one_phase(shape[0], pool_by_pool)
        gpus = found.gpus
        fits = (gpus >= self.task.min_gpus) & (gpus <= self.most)
        for name, least in {*found.kinds, *((name, 1) for name in self.rooms)}:
            takes = [
                replicas_per_block(size, least, self.full[name]) if owner == name and size >= least else 0
                for owner, size in found.kinds
            ]
            fits &= found.counts @ np.array(takes, dtype=np.int64) <= self.rooms[name].rooms(least)
        return replace(found.keep(np.flatnonzero(fits)), dropped=0)

    def _one_phase(self, pools: Sequence[tuple[int, ...]], pool_by_pool: bool) -> ConfigurationTable:
        """List the configurations of pools side by side; each pool may be of another GPU class."""
        options = [self.pools(pool, None) for pool in pools]
        if not all(map(len, options)):
            return self.merged(())
        table = phase_table(options, self.task, self.most, self.full, pool_by_pool=pool_by_pool)
        handover_s = self.task.sync_s if len(options) > 1 else 0.0
        return ConfigurationTable(
            self.task,
            table.kinds,
            table.blocks,
            table.time_s(self.task) + handover_s,
            table["cores"],
            table["host"],
            table.even,
            lambda number: (table.options(number),),
        )

    def _several_phases(self, shape: Shape, capacity: ClassCapacity) -> Iterator[ConfigurationTable]:
        """List the configurations of phases that take the same blocks of one GPU class in turn."""
        for mode in MemoryMode:
            options = [
                [self.pools(pool, mode).of_class(capacity.gpu_class) for pool in pools] for pools in shape
            ]
            if not all(all(map(len, each)) for each in options):
                continue
            tables = [
                phase_table(each, self.task, self.most, self.full, between_phases=mode) for each in options
            ]
            for block_gpus, numbers, rows in shared_phases(tables, self.task, capacity):
                yield self._in_turn(tables, rows, (capacity.gpu_class, block_gpus), numbers)

    def _in_turn(
        self, tables: Sequence[PhaseTable], rows: Ints, kind: Kind, numbers: Ints
    ) -> ConfigurationTable:
        def summed(each: Sequence[Floats]) -> Floats:
            parts = [values[own] for values, own in zip(each, rows.T, strict=True)]
            total: Floats = np.column_stack(parts).sum(axis=1)
            return total

        def phases_of(number: int) -> Phases:
            return tuple(table.options(int(row)) for table, row in zip(tables, rows[number], strict=True))

        gpus = numbers * kind[1]
        return ConfigurationTable(
            self.task,
            (kind,),
            numbers[:, None],
            summed([table.time_s(self.task) for table in tables]) + self.task.sync_s,
            gpus * summed([table["cores_per_gpu"] for table in tables]),
            gpus * summed([table["host_per_gpu"] for table in tables]),
            np.ones(len(rows), dtype=bool),
            phases_of,
        )

    def merged(self, tables: Iterable[ConfigurationTable]) -> ConfigurationTable:
        """Merge the tables of several shapes."""
        parts = list(tables)
        kinds = tuple(sorted({kind for part in parts for kind in part.kinds}))
        begins = np.cumsum([0, *map(len, parts)])
        counts = np.zeros((int(begins[-1]), len(kinds)), dtype=np.int64)
        for begin, part in zip(begins, parts, strict=False):
            for at, kind in enumerate(part.kinds):
                counts[begin : begin + len(part), kinds.index(kind)] = part.counts[:, at]

        def phases_of(number: int) -> Phases:
            part = int(np.searchsorted(begins, number, side="right")) - 1
            return parts[part].phases_of(number - int(begins[part]))

        return ConfigurationTable(
            self.task,
            kinds,
            counts,
            np.concatenate([np.zeros(0), *(part.seconds for part in parts)]),
            np.concatenate([np.zeros(0), *(part.cores for part in parts)]),
            np.concatenate([np.zeros(0), *(part.host_mib for part in parts)]),
            np.concatenate([np.zeros(0, dtype=bool), *(part.even for part in parts)]),
            phases_of,
            sum(part.dropped for part in parts),
        )

    def unbeaten(self, table: ConfigurationTable, among: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return those of some configurations that no other beats in time, blocks, cores and host memory.

        Those of even configurations are compared by the GPU too, since a node may have little for each.
        """
        if not len(among):
            return among
        counts, gpus = table.counts[among], table.gpus[among]
        present = [at for at in range(len(table.kinds)) if counts[:, at].any()]
        needs = at_least(counts[:, present], [table.kinds[at] for at in present], self.full)
        host = [table.cores[among], table.host_mib[among]]
        if table.even[among].all():
            host = [each / gpus for each in host]
        measures = [needs, table.seconds[among], -np.minimum(gpus, self.task.min_gpus), *host]
        return among[pareto_front(np.column_stack(measures).astype(np.float64))]

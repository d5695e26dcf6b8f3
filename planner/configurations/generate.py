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
from libra_plan.planner.configurations.joint import JointTask, any_shapes_of, members_in_first
from libra_plan.planner.configurations.joint_phases import joint_phases
from libra_plan.planner.configurations.pareto import undominated
from libra_plan.planner.configurations.phases import Kind, PhaseTable, at_least, phase_table
from libra_plan.planner.configurations.pools import PoolOption, pool_options
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
        kept = np.concatenate((maker.undominated(found, even), np.flatnonzero(~found.even | by_id)))
        if len(kept) <= _MOST_KEPT:
            return _sorted(found.keep(kept))
    each = [maker.of_shape(shape, pool_by_pool=False) for shape in shapes]
    if by_id:  # pools are in other places in every shape
        each = [table.keep(maker.undominated(table, np.arange(len(table)))) for table in each]
    found = maker.merged(each)
    if not by_id:
        found = found.keep(maker.undominated(found, np.arange(len(found))))
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
        self._options: dict[tuple[tuple[int, ...], str, MemoryMode | None], list[PoolOption]] = {}

    def options(self, pool: tuple[int, ...], gpu_class: str, mode: MemoryMode | None) -> list[PoolOption]:
        """List the options of a pool on one GPU class."""
        key = (pool, gpu_class, mode)
        if key not in self._options:
            roles = [self.task.gpu_roles[number] for number in pool]
            self._options[key] = pool_options(
                roles,
                self.rooms[gpu_class],
                between_phases=mode,
                fill=self.task.roles_fill_pools,
                least_gpus=self.task.min_gpus,
                apart=members_in_first(self.task, roles),
            )
        return self._options[key]

    def of_any_class(self, pool: tuple[int, ...]) -> list[PoolOption]:
        """List the options of a pool that has its GPUs to itself."""
        return [option for name in self.rooms for option in self.options(pool, name, None)]

    def combinations(self, shapes: Sequence[Shape]) -> int:
        """Count the combinations of options of the one-phase shape that has most."""
        one_phase = [shape[0] for shape in shapes if len(shape) == 1]
        counts = (prod(len(self.of_any_class(pool)) for pool in pools) for pools in one_phase)
        return max(counts, default=0)

    def of_shape(self, shape: Shape, *, pool_by_pool: bool) -> ConfigurationTable:
        """List the configurations of one shape that fit in the cluster."""
        if len(shape) > 1:
            found = self._listed(
                way for room in self.rooms.values() for way in self._several_phases(shape, room)
            )
        else:
            options = [self.of_any_class(pool) for pool in shape[0]]
            if not all(options):
                found = self._listed(())
            elif isinstance(self.task, JointTask):
                ways = joint_phases(self.task, options, self.most, self.full, pool_by_pool=pool_by_pool)
                found = self._listed(((pools,), blocks, seconds) for pools, blocks, seconds in ways)
            else:
                found = self._one_phase(options, pool_by_pool)
        gpus = found.gpus
        fits = (gpus >= self.task.min_gpus) & (gpus <= self.most)
        for name, least in {*found.kinds, *((name, 1) for name in self.rooms)}:
            takes = [
                replicas_per_block(size, least, self.full[name]) if owner == name and size >= least else 0
                for owner, size in found.kinds
            ]
            fits &= found.counts @ np.array(takes, dtype=np.int64) <= self.rooms[name].rooms(least)
        return replace(found.keep(np.flatnonzero(fits)), dropped=0)

    def _one_phase(self, options: Sequence[Sequence[PoolOption]], pool_by_pool: bool) -> ConfigurationTable:
        """List the configurations of pools side by side; each pool may be of another GPU class."""
        table = phase_table(
            options,
            self.task.coupling,
            self.most,
            self.full,
            pool_by_pool=pool_by_pool,
            least_gpus=self.task.min_gpus,
        )
        cores, even = _cores(table)
        handover_s = self.task.sync_s if len(options) > 1 else 0.0
        seconds = table.time_s(self.task.coupling) + handover_s
        return ConfigurationTable(
            self.task,
            table.kinds,
            table.blocks,
            seconds,
            cores,
            table.host,
            even,
            lambda number: (table.pools(number),),
        )

    def _several_phases(
        self, shape: Shape, capacity: ClassCapacity
    ) -> Iterator[tuple[Phases, Blocks, float]]:
        task, name = self.task, capacity.gpu_class
        for mode in MemoryMode:
            options = [[self.options(pool, name, mode) for pool in pools] for pools in shape]
            if not all(all(each) for each in options):
                continue
            known = [
                phase_table(
                    each, task.coupling, self.most, self.full, between_phases=mode, least_gpus=task.min_gpus
                )
                for each in options
            ]
            seconds = [table.time_s(task.coupling) for table in known]
            for block_gpus, number, rows in shared_phases(known, task.coupling, capacity, task.min_gpus):
                phases = tuple(table.pools(row) for table, row in zip(known, rows, strict=True))
                time_s = sum(float(each[row]) for each, row in zip(seconds, rows, strict=True))
                yield phases, ((name, block_gpus, number),), time_s

    def _listed(self, ways: Iterable[tuple[Phases, Blocks, float]]) -> ConfigurationTable:
        """Make a table of phases with their blocks and seconds."""
        found = list(ways)
        kinds = tuple(sorted({(name, size) for _, blocks, _ in found for name, size, _ in blocks}))
        counts = np.zeros((len(found), len(kinds)), dtype=np.int64)
        for row, (_, blocks, _) in enumerate(found):
            for name, size, number in blocks:
                counts[row, kinds.index((name, size))] = number
        host = [_host(phases, blocks) for phases, blocks, _ in found]
        several = [sum(len(phase) for phase in phases) > 1 for phases, _, _ in found]
        return ConfigurationTable(
            self.task,
            kinds,
            counts,
            np.array([seconds for _, _, seconds in found]) + self.task.sync_s * np.array(several, dtype=bool),
            np.array([cores for cores, _, _ in host]),
            np.array([mib for _, mib, _ in host]),
            np.array([even for _, _, even in host], dtype=bool),
            lambda number: found[number][0],
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

    def undominated(self, table: ConfigurationTable, among: NDArray[np.intp]) -> NDArray[np.intp]:
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
        return among[undominated(np.column_stack(measures).astype(np.float64))]


def _cores(table: PhaseTable) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the CPU cores of every phase, and whether each of its GPUs takes as much as any other."""
    cores, even = np.zeros(len(table)), np.ones(len(table), dtype=bool)
    first: Floats | None = None
    for options, picks in zip(table.options, table.picks.T, strict=True):
        pools = [option.pool for option in options]
        each = np.array([(pool.cpu_cores_per_gpu, pool.host_memory_mib_per_gpu) for pool in pools])[picks]
        cores += each[:, 0] * np.array([pool.gpus for pool in pools])[picks]
        first = each if first is None else first
        even &= (each == first).all(axis=1)
    return cores, even


def _host(phases: Phases, blocks: Blocks) -> tuple[float, float, bool]:
    """Return CPU cores, host memory (MiB), and whether each GPU takes as much."""
    each = [[option.pool for option in phase] for phase in phases]
    if len(each) == 1:
        (pools,) = each
        cores = sum(pool.cpu_cores_per_gpu * pool.gpus for pool in pools)
        host = sum(pool.host_memory_mib_per_gpu * pool.gpus for pool in pools)
        return cores, host, len({(p.cpu_cores_per_gpu, p.host_memory_mib_per_gpu) for p in pools}) == 1
    gpus = sum(size * number for _, size, number in blocks)
    cores = gpus * sum(max(pool.cpu_cores_per_gpu for pool in pools) for pools in each)
    host = gpus * sum(max(pool.host_memory_mib_per_gpu for pool in pools) for pools in each)
    return cores, host, True

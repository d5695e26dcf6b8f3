"""Configurations of one task: every shape, every pool, merged and freed of what is beaten.

Everything is compared as arrays; a configuration is only built when somebody asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.topology import Cluster
from libra_plan.planner.configurations.arrangements import Shape
from libra_plan.planner.configurations.build import build_configuration
from libra_plan.planner.configurations.capacity import ClassCapacity, capacities
from libra_plan.planner.configurations.joint import JointTask, any_shapes_of, members_in_first
from libra_plan.planner.configurations.joint_phases import joint_phases
from libra_plan.planner.configurations.pareto import undominated
from libra_plan.planner.configurations.phases import at_least, phase_table
from libra_plan.planner.configurations.pools import PoolOption, pool_options
from libra_plan.planner.configurations.shared import shared_phases
from libra_plan.planner.plan import Configuration, MemoryMode
from libra_plan.planner.problem import Task

__all__ = ["ConfigurationDraft", "ConfigurationTable", "configurations_of"]

Phases = tuple[tuple[PoolOption, ...], ...]
Blocks = tuple[tuple[str, int, int], ...]

# Up to here configurations are kept apart wherever a node or a named GPU could tell them apart.
_MOST_COMBINATIONS = 20_000
_MOST_KEPT = 2_000


@dataclass(frozen=True, slots=True)
class ConfigurationDraft:
    """A way to run the task before it is a configuration: phases of pool options on blocks.

    `cores` and `host_mib` are of the whole configuration; `even` when each of its GPUs takes as much.
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
class ConfigurationTable:
    """The configurations of a task, fastest first, and how many were beaten and dropped.

    `exact` tells that none of the dropped could be placed where those that beat it cannot. Where
    that would leave too many, cores and host memory are compared over the whole configuration only.
    """

    task: Task
    drafts: tuple[ConfigurationDraft, ...]
    dropped: int
    exact: bool

    def __len__(self) -> int:
        return len(self.drafts)

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Give every configuration's step time, seconds."""
        return np.array([draft.seconds for draft in self.drafts])

    @property
    def gpus(self) -> NDArray[np.int64]:
        """Count every configuration's GPUs."""
        return np.array([draft.gpus for draft in self.drafts], dtype=np.int64)

    def configuration(self, number: int) -> Configuration:
        """Build a configuration."""
        draft = self.drafts[number]
        return build_configuration(self.task, draft.phases, draft.blocks)

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Build all configurations."""
        return tuple(self.configuration(number) for number in range(len(self)))


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
    compared only where every GPU takes as much, unless that leaves too many of them. `rooms` is what
    the cluster has (`capacities`), for whoever asks of many tasks.
    """
    by_id = any(role.pinned_gpus or role.excluded_gpus for role in task.gpu_roles)
    maker = _Maker(task, capacities(cluster) if rooms is None else rooms)
    shapes = [shape for shape in any_shapes_of(task) if len(shape) == 1 or not by_id]
    matters = by_id or (hosts_bind and _takes_host(task))
    if matters and maker.combinations(shapes) <= _MOST_COMBINATIONS:
        found = [draft for shape in shapes for draft in maker.drafts(shape, pool_by_pool=True)]
        # uneven configurations were compared within their shapes, those of named GPUs too
        even = [] if by_id else [draft for draft in found if draft.even]
        kept = [*maker.undominated(even), *(draft for draft in found if by_id or not draft.even)]
        if len(kept) <= _MOST_KEPT:
            return _table(task, kept, len(found), exact=True)
    each = [list(maker.drafts(shape, pool_by_pool=False)) for shape in shapes]
    found = [draft for drafts in each for draft in drafts]
    if by_id:  # pools are in other places in every shape
        kept = [draft for drafts in each for draft in maker.undominated(drafts)]
    else:
        kept = maker.undominated(found)
    return _table(task, kept, len(found), exact=not matters)


def _table(task: Task, kept: list[ConfigurationDraft], made: int, *, exact: bool) -> ConfigurationTable:
    kept.sort(key=lambda draft: (draft.seconds, draft.gpus, draft.blocks))
    return ConfigurationTable(task, tuple(kept), made - len(kept), exact)


def _takes_host(task: Task) -> bool:
    return any(
        role.cpu_cores_per_gpu
        or role.host_memory_mib_per_gpu
        or any(option.host_static_mib or option.offloaded_host_mib for option in role.options)
        for role in task.gpu_roles
    )


class _Maker:
    """Makes the drafts of one task; the options of a pool are made once for all shapes."""

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

    def drafts(self, shape: Shape, *, pool_by_pool: bool) -> Iterator[ConfigurationDraft]:
        """Make the drafts of one shape that there is room for."""
        if len(shape) == 1:
            found = self._one_phase(shape, pool_by_pool)
        else:
            found = (each for room in self.rooms.values() for each in self._several_phases(shape, room))
        for phases, blocks, seconds in found:
            draft = _draft(self.task, phases, blocks, seconds)
            if self._has_room(blocks) and self.task.min_gpus <= draft.gpus <= self.most:
                yield draft

    def _has_room(self, blocks: Blocks) -> bool:
        taken: Counter[str] = Counter()
        for name, size, number in blocks:
            taken[name] += size * number
            if number > self.rooms[name].rooms(size):
                return False
        return all(gpus <= self.rooms[name].gpus for name, gpus in taken.items())

    def _one_phase(self, shape: Shape, pool_by_pool: bool) -> Iterator[tuple[Phases, Blocks, float]]:
        """List phases of one-phase configurations; each pool may be of another GPU class."""
        options = [self.of_any_class(pool) for pool in shape[0]]
        if not all(options):
            return
        if isinstance(self.task, JointTask):
            found = joint_phases(self.task, options, self.most, self.full, pool_by_pool=pool_by_pool)
            yield from (((pools,), blocks, seconds) for pools, blocks, seconds in found)
            return
        table = phase_table(
            options,
            self.task.coupling,
            self.most,
            self.full,
            pool_by_pool=pool_by_pool,
            least_gpus=self.task.min_gpus,
        )
        seconds = table.time_s(self.task.coupling)
        for row in range(len(table)):
            numbers = zip(table.kinds, table.blocks[row], strict=True)
            blocks = tuple((name, size, int(number)) for (name, size), number in numbers if number)
            yield (table.pools(row),), blocks, float(seconds[row])

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

    def undominated(self, drafts: Sequence[ConfigurationDraft]) -> list[ConfigurationDraft]:
        """Keep drafts that no other beats in time, blocks of every size, cores and host memory.

        Those of even drafts are compared by the GPU too, since a node may have little for each.
        """
        if not drafts:
            return []
        more = [-min(draft.gpus, self.task.min_gpus) for draft in drafts]
        configurations = [*_needs(drafts, self.full).T, [draft.seconds for draft in drafts], more]
        measures = [[draft.cores for draft in drafts], [draft.host_mib for draft in drafts]]
        if all(draft.even for draft in drafts):
            measures = [[value / d.gpus for value, d in zip(each, drafts, strict=True)] for each in measures]
        for values in measures:
            if len(set(values)) > 1:
                configurations.append(values)
        return [drafts[number] for number in undominated(np.column_stack(configurations).astype(np.float64))]


def _draft(task: Task, phases: Phases, blocks: Blocks, seconds: float) -> ConfigurationDraft:
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
    return ConfigurationDraft(phases, blocks, seconds + handover_s, cores, host, even)


def _needs(drafts: Sequence[ConfigurationDraft], full_node_gpus: Mapping[str, int]) -> NDArray[np.int64]:
    """Measure blocks class by class, shape (drafts, classes × sizes)."""
    kinds = sorted({(name, size) for draft in drafts for name, size, _ in draft.blocks})
    at = {kind: number for number, kind in enumerate(kinds)}
    counts = np.zeros((len(drafts), len(kinds)), dtype=np.int64)
    for row, draft in enumerate(drafts):
        for name, size, number in draft.blocks:
            counts[row, at[name, size]] = number
    return at_least(counts, kinds, full_node_gpus)

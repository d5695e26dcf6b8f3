"""The configurations in which a running task may continue without moving, at today's prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.configurations.arrangements import Shape
from libra_plan.planner.configurations.build import build_configuration
from libra_plan.planner.configurations.capacity import ClassCapacity, capacities
from libra_plan.planner.configurations.joint import any_shapes_of, members_in_first
from libra_plan.planner.configurations.packing import blocks_around
from libra_plan.planner.configurations.pools import PoolOption, pool_options, role_options
from libra_plan.planner.plan import Configuration, MemoryMode
from libra_plan.planner.problem import IncumbentRole, IncumbentTask, Problem, Role, Task

__all__ = ["held_configurations"]

Phases = tuple[tuple[PoolOption, ...], ...]
Blocks = tuple[tuple[str, int, int], ...]


def held_configurations(
    problem: Problem, task: Task, held: IncumbentTask, rooms: Mapping[str, ClassCapacity] | None = None
) -> list[Configuration]:
    """List the configurations that describe what a task holds, fastest first; none when it cannot stay.

    It cannot when a GPU is gone or excluded, a role changed, or its option is refused today. All
    configurations that describe it count, whether another would beat them elsewhere or not: often roles
    apart would do as well together on fewer GPUs, which is no reason to move them. `rooms` are those of
    the cluster, for callers with many tasks.
    """
    now = _Now(problem.cluster, {role.role: role for role in held.roles})
    if set(now.roles) != {role.id for role in task.gpu_roles} or not all(map(now.stays, task.gpu_roles)):
        return []
    by_id = any(role.pinned_gpus or role.excluded_gpus for role in task.gpu_roles)
    rooms = rooms or capacities(problem.cluster)
    found = [
        build_configuration(task, phases, blocks)
        for shape in any_shapes_of(task)
        if len(shape) == 1 or not by_id
        for phases, blocks in _of_shape(task, shape, now, rooms)
    ]
    return sorted(found, key=lambda configuration: (configuration.step_time_s.value, configuration.gpus))


@dataclass(frozen=True, slots=True)
class _Now:
    """The placement of a task's roles."""

    cluster: Cluster
    roles: dict[str, IncumbentRole]

    def gpus(self, role: str) -> set[GpuId]:
        """Return the GPUs a role holds."""
        return {gpu for replica in self.roles[role].replicas for gpu in replica}

    def stays(self, role: Role) -> bool:
        """Return whether a role may stay on its GPUs, and they are still replicas as they must be."""
        gpus, held = self.gpus(role.id), self.roles[role.id]
        if not gpus or not gpus <= set(self.cluster.gpus) or gpus & role.excluded_gpus:
            return False
        if role.pinned_gpus and gpus != role.pinned_gpus:
            return False
        sizes = [layout.gpus_per_replica for layout, _ in held.placed]
        return len(gpus) == sum(sizes) and all(map(self._is_whole, held.replicas))

    def _is_whole(self, replica: tuple[GpuId, ...]) -> bool:
        nodes = {gpu.node for gpu in replica}
        if len(nodes) == 1:
            return True
        one_span = len({self.cluster.span_of[node] for node in nodes}) == 1
        known = self.cluster.gpus
        classes = {known[gpu].gpu_class for gpu in replica}
        whole = {gpu for gpu in known if gpu.node in nodes and known[gpu].gpu_class in classes}
        return one_span and whole == set(replica)

    def classes(self, roles: Sequence[Role]) -> set[str]:
        """List the GPU classes that roles are on."""
        return {self.cluster.gpus[gpu].gpu_class for role in roles for gpu in self.gpus(role.id)}

    def as_it_is(self, role: Role) -> Role:
        """Restrict a role to the options it runs in now."""
        held = self.roles[role.id]
        now = sorted(layout for layout, _ in held.placed)
        same = (each for each in role.options if bool(each.mix) == bool(held.mix))
        return replace(role, options=tuple(each for each in same if sorted(each.layouts) == now))


def _of_shape(
    task: Task, shape: Shape, now: _Now, rooms: Mapping[str, ClassCapacity]
) -> Iterator[tuple[Phases, Blocks]]:
    roles = [now.as_it_is(role) for role in task.gpu_roles]
    taking_turns = [roles] if len(shape) > 1 else [[roles[number] for number in pool] for pool in shape[0]]
    if any(len(now.classes(members)) > 1 for members in taking_turns):
        return
    everything = len(set().union(*(now.gpus(role.id) for role in roles)))
    modes: tuple[MemoryMode | None, ...] = (None,) if len(shape) == 1 else tuple(MemoryMode)
    for mode in modes:
        each = [
            [_pools([roles[n] for n in pool], task, now, rooms, mode) for pool in pools] for pools in shape
        ]
        for phases in product(*(product(*pools) for pools in each)):
            blocks = _blocks(phases, rooms)
            gpus = sum(size * number for _, size, number in blocks)
            allowed = max(task.min_gpus, everything) <= gpus <= (task.max_gpus or gpus)
            if allowed and _describes(phases, roles, now) and _remembers(phases, mode, rooms):
                yield phases, blocks


def _pools(
    members: Sequence[Role],
    task: Task,
    now: _Now,
    rooms: Mapping[str, ClassCapacity],
    mode: MemoryMode | None,
) -> list[PoolOption]:
    (gpu_class,) = now.classes(members)
    table = pool_options(
        [role_options(role, {gpu_class: rooms[gpu_class]}) for role in members],
        between_phases=mode,
        fill=task.roles_fill_pools,
        apart=members_in_first(task, members),
    )
    return table.all_options()


def _blocks(phases: Phases, rooms: Mapping[str, ClassCapacity]) -> Blocks:
    needs = [Counter[tuple[str, int]]() for _ in phases]
    for need, phase in zip(needs, phases, strict=True):
        for option in phase:
            need[option.pool.gpu_class, option.pool.block_gpus] += option.pool.blocks
    if len(phases) > 1:
        gpu_class, largest = max(key for need in needs for key in need)
        full = rooms[gpu_class].full_node_gpus
        around = [blocks_around(tuple((s, n) for (_, s), n in need.items()), largest, full) for need in needs]
        return ((gpu_class, largest, max(number or 0 for number in around)),)
    return tuple((gpu_class, size, number) for (gpu_class, size), number in sorted(needs[0].items()))


def _describes(phases: Phases, roles: Sequence[Role], now: _Now) -> bool:
    """Return whether pools of one phase are on GPUs of their own now, no more than the configuration has."""
    excluded = {role.id: role.excluded_gpus for role in roles}
    for phase in phases:
        names = [[choice.role for choice in option.pool.choices] for option in phase]
        unions = [set().union(*(now.gpus(name) for name in pool)) for pool in names]
        if sum(map(len, unions)) != len(set().union(*unions)):
            return False
        for pool, union, option in zip(names, unions, phase, strict=True):
            if len(union) > option.pool.gpus or any(union & excluded[name] for name in pool):
                return False
    return True


def _remembers(phases: Phases, mode: MemoryMode | None, rooms: Mapping[str, ClassCapacity]) -> bool:
    """Return whether each phase fits beside what the others leave on the GPUs."""
    if mode is None:
        return True  # pools check their own memory
    left = [max(option.left_behind_mib(mode) for option in phase) for phase in phases]
    memory_mib = rooms[phases[0][0].pool.gpu_class].memory_mib
    return all(
        option.pool.peak_mib + sum(left) - own <= memory_mib
        for phase, own in zip(phases, left, strict=True)
        for option in phase
    )

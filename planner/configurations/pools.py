"""Pools: roles that take the same GPUs in turn, with the best option for each role.

A pool's blocks have the size of its largest replica. Per block size and number the generator keeps
every combination of options that is not beaten in time and in host memory. It is exact: a dropped
combination is never better than a kept one that needs the same or fewer GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import inf

from libra_plan.models.rollout.streaming import Stream
from libra_plan.models.topology import GpuId
from libra_plan.planner.configurations.capacity import ClassCapacity, replicas_per_block
from libra_plan.planner.configurations.packing import are_nested, blocks_around
from libra_plan.planner.configurations.pareto import Front, insert
from libra_plan.planner.plan import MemoryMode, Pool, RoleChoice
from libra_plan.planner.problem import Role, StageOption

__all__ = ["PoolOption", "pool_options", "pools_made", "usable_options"]


@dataclass(frozen=True, slots=True)
class PoolOption:
    """A pool with its seconds per step (work and switches) and what it leaves behind.

    `static_mib` and `asleep_mib` are what its roles keep on the GPU while another phase works.
    `splitting` tells apart in how large replicas pinned GPUs are split.
    """

    pool: Pool
    working_s: float
    switching_s: float
    static_mib: float
    asleep_mib: float
    splitting: tuple[float, ...] = ()

    @property
    def time_s(self) -> float:
        """Return the seconds the pool takes for one step's work."""
        return self.working_s + self.switching_s

    @property
    def stream(self) -> Stream | None:
        """Return work and latency of a rollout that never drains and is alone in its pool."""
        return self.pool.choices[0].option.stream

    def left_behind_mib(self, mode: MemoryMode) -> float:
        """Return what stays on each GPU while another phase has it, MiB."""
        return self.static_mib if mode is MemoryMode.RESIDENT else self.asleep_mib


def usable_options(role: Role, capacity: ClassCapacity) -> list[StageOption]:
    """List the options of a role that its own limits and the GPU's memory allow."""
    most = capacity.gpus if role.max_gpus is None else min(role.max_gpus, capacity.gpus)
    pinned = len(role.pinned_gpus)
    return [
        option
        for option in role.options
        if option.gpu_class == capacity.gpu_class
        and role.min_gpus <= option.gpus <= most
        and (not pinned or (option.gpus == pinned and _splits(role.pinned_gpus, option, capacity)))
        and not (pinned and option.mix)
        and option.peak_mib <= capacity.memory_mib
        and all(capacity.rooms(gpus) >= replicas for gpus, replicas in option.sizes)
    ]


def _splits(pinned: frozenset[GpuId], option: StageOption, capacity: ClassCapacity) -> bool:
    """Return whether pinned GPUs split into replicas that no node cuts, or that fill whole nodes."""
    size, full = option.layout.gpus_per_replica, capacity.full_node_gpus
    per_node = Counter(gpu.node for gpu in pinned)
    if size <= full:
        return all(number % size == 0 for number in per_node.values())
    per_span = Counter(capacity.span_of[node] for node in per_node)
    whole = all(number == full for number in per_node.values())
    return whole and all(nodes * full % size == 0 for nodes in per_span.values())


def pool_options(
    roles: Sequence[Role],
    capacity: ClassCapacity,
    *,
    between_phases: MemoryMode | None = None,
    fill: bool = False,
    least_gpus: int = 0,
    apart: int = 0,
) -> list[PoolOption]:
    """List the pools of these roles worth considering, by block size and number of blocks.

    With `fill` every role uses all GPUs of the pool. `between_phases` is given when the pool's GPUs
    serve another phase too: it says what every role does with its state meanwhile, alone in its
    pool or not. A task that must have `least_gpus` may want a larger pool for no other gain. The first
    `apart` roles are another task's than the rest: the time of each matters, not only their sum.
    """
    shared = len(roles) > 1 or between_phases is not None
    options = [
        [option for option in usable_options(role, capacity) if not (shared and option.stream)]
        for role in roles
    ]
    if not all(options):
        return []
    sizes = sorted({option.layout.gpus_per_replica for each in options for option in each})
    found: list[PoolOption] = []
    for block_gpus in sizes:
        found.extend(
            _pools_of_block(roles, options, block_gpus, capacity, between_phases, fill, least_gpus, apart)
        )
    return found


def _pools_of_block(
    roles: Sequence[Role],
    options: list[list[StageOption]],
    block_gpus: int,
    capacity: ClassCapacity,
    between_phases: MemoryMode | None,
    fill: bool,
    least_gpus: int,
    apart: int,
) -> list[PoolOption]:
    """List pools of one block size; a larger pool is kept only when it gains something."""
    by_blocks = [_by_blocks_needed(each, block_gpus, capacity) for each in options]
    eligible: list[Front[StageOption]] = [[] for _ in roles]
    best: Front[PoolOption] = []  # over all numbers of blocks so far
    found: list[PoolOption] = []
    sizes = {option.layout.gpus_per_replica for each in options for option in each}
    nested = are_nested(tuple(sizes), capacity.full_node_gpus)
    rooms = capacity.rooms(block_gpus)
    for blocks in sorted(number for number in set().union(*by_blocks) if 1 <= number <= rooms):
        fresh = False
        more = -float(min(blocks * block_gpus, least_gpus))
        for number, needed in enumerate(by_blocks):
            if fill:
                eligible[number] = []
            for option in needed.get(blocks, ()):
                if fill and option.gpus != blocks * block_gpus:
                    continue
                measures = (more, *_option_measures(roles[number], option, block_gpus, nested))
                fresh |= insert(eligible[number], measures, option)
        if not fresh or not all(eligible):
            continue
        exactly = {id(option) for needed in by_blocks for option in needed.get(blocks, ())}
        for choice in product(*eligible):
            chosen = [option for _, option in choice]
            if exactly.isdisjoint(map(id, chosen)):
                continue  # its pool was made before, and is never padded
            if max(option.layout.gpus_per_replica for option in chosen) < block_gpus:
                continue  # a pool of smaller blocks
            for made in pools_made(roles, chosen, block_gpus, blocks, capacity, between_phases):
                insert(best, (more, *_pool_measures(made, between_phases, apart), *made.splitting), made)
        found += [option for _, option in best if option.pool.blocks == blocks]
    return found


def _pool_measures(option: PoolOption, between_phases: MemoryMode | None, apart: int) -> tuple[float, ...]:
    """Return the measures that later steps use: memory only when phases share the GPUs."""
    times: tuple[float, ...] = (option.time_s, *_streaming(option.pool.choices[0].option))
    if apart:
        first, asleep = option.pool.choices[:apart], option.pool.memory_mode is MemoryMode.SLEEP
        first_s = sum(each.option.time_s.value + each.option.switch_s * asleep for each in first)
        times = (first_s, option.time_s - first_s)
    measures = (*times, option.pool.host_memory_mib_per_gpu)
    if between_phases is None:
        return measures
    return (*measures, option.pool.peak_mib, option.left_behind_mib(between_phases))


def _streaming(option: StageOption) -> tuple[float, float]:
    return (0.0, 0.0) if option.stream is None else (option.stream.work_s, option.stream.latency_s)


def _splittings(roles: Sequence[Role], options: Sequence[StageOption]) -> tuple[float, ...]:
    """Keep apart how pinned GPUs are split into replicas: other pools may leave room for one only."""
    if not any(role.pinned_gpus for role in roles):
        return ()
    sizes = [
        option.layout.gpus_per_replica
        for role, option in zip(roles, options, strict=True)
        if role.pinned_gpus
    ]
    return tuple(float(sign * size) for size in sizes for sign in (1, -1))


def _option_measures(role: Role, option: StageOption, block_gpus: int, nested: bool) -> tuple[float, ...]:
    """Return the measures that matter for any pool.

    Where sizes do not divide each other, only an option as large as the blocks replaces one that is:
    smaller blocks might hold the other roles worse.
    """
    return (
        float(not nested and option.layout.gpus_per_replica < block_gpus),
        *_splittings([role], [option]),
        option.time_s.value,
        *_streaming(option),
        option.peak_mib,
        option.static_mib,
        option.asleep_mib,
        option.host_static_mib,
        option.offloaded_host_mib,
        inf if option.sleep_s is None else option.sleep_s,
        inf if option.wake_s is None else option.wake_s,
    )


def _by_blocks_needed(
    options: list[StageOption], block_gpus: int, capacity: ClassCapacity
) -> dict[int, list[StageOption]]:
    """Sort a role's options by the number of blocks they need."""
    needed: dict[int, list[StageOption]] = {}
    for option in options:
        if option.mix:
            around = blocks_around(option.sizes, block_gpus, capacity.full_node_gpus)
            if around is not None:
                needed.setdefault(around, []).append(option)
            continue
        each = replicas_per_block(block_gpus, option.layout.gpus_per_replica, capacity.full_node_gpus)
        if each:
            needed.setdefault(-(-option.replicas // each), []).append(option)
    return needed


def pools_made(
    roles: Sequence[Role],
    choice: Sequence[StageOption],
    block_gpus: int,
    blocks: int,
    capacity: ClassCapacity,
    between_phases: MemoryMode | None,
) -> list[PoolOption]:
    """Make the pool in each memory mode that fits: state resident, or put to host memory."""
    static = sum(option.static_mib for option in choice)
    asleep = sum(option.asleep_mib for option in choice)
    working = sum(option.time_s.value for option in choice)
    can_sleep = all(option.sleep_s is not None and option.wake_s is not None for option in choice)
    made = []
    resident_peak = max(option.peak_mib + static - option.static_mib for option in choice)
    if resident_peak <= capacity.memory_mib and between_phases is not MemoryMode.SLEEP:
        made.append((MemoryMode.RESIDENT, 0.0, resident_peak, 0.0))
    sleeps = between_phases is MemoryMode.SLEEP or (between_phases is None and len(choice) > 1)
    if can_sleep and sleeps:
        switching = sum((option.sleep_s or 0.0) + (option.wake_s or 0.0) for option in choice)
        peak = max(option.peak_mib + asleep - option.asleep_mib for option in choice)
        host = sum(option.host_static_mib for option in choice)
        if peak <= capacity.memory_mib:
            made.append((MemoryMode.SLEEP, switching, peak, host))
    cores = sum(role.cpu_cores_per_gpu for role in roles)
    host_each = sum(role.host_memory_mib_per_gpu for role in roles)
    host_each += sum(option.offloaded_host_mib for option in choice)
    choices = tuple(RoleChoice(role.id, option) for role, option in zip(roles, choice, strict=True))
    return [
        PoolOption(
            Pool(capacity.gpu_class, choices, block_gpus, blocks, mode, peak, cores, host_each + host),
            working,
            switching_s,
            static,
            asleep,
            _splittings(roles, choice),
        )
        for mode, switching_s, peak, host in made
    ]

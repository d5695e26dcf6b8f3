"""Check one task's configuration and limits: its form, its price and the memory of every GPU it takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.plan import Configuration, MemoryMode, Pool, RunningTask
from libra_plan.planner.problem import CouplingKind, StageOption, Task
from libra_plan.planner.verify.blocks import blocks_needed
from libra_plan.planner.verify.rules import (
    Times,
    Violation,
    arrangement_of,
    close,
    configuration_peak_mib,
    host_per_gpu,
    role_of,
    step_times,
    turns_of,
)

__all__ = ["check_filled", "check_form", "check_limits", "check_price"]

EXACT = 1e-9  # relative: sums of the same floats in another order
ROOM_MIB = 1e-6  # what a sum may be over by rounding

Found = Iterator[Violation]


def check_limits(task: Task, running: RunningTask) -> Found:
    """Yield the limits and pins of the task that the configuration breaks."""
    for placed in running.roles:
        role, gpus = role_of(task, placed.role), len(set(placed.gpus))
        if not _within(gpus, role.min_gpus, role.max_gpus):
            allowed = f"{role.min_gpus} to {role.max_gpus or 'any'}"
            yield Violation("role-limit", f"has {gpus} GPUs; allowed: {allowed}", f"{task.id}.{placed.role}")
        if role.pinned_gpus and frozenset(placed.gpus) != role.pinned_gpus:
            yield Violation("pinned", "does not run on the GPUs it is pinned to", f"{task.id}.{placed.role}")
    if not _within(running.configuration.gpus, task.min_gpus, task.max_gpus):
        allowed = f"{task.min_gpus} to {task.max_gpus or 'any'}"
        yield Violation("task-limit", f"has {running.configuration.gpus} GPUs; allowed: {allowed}", task.id)


def _within(number: int, least: int, most: int | None) -> bool:
    return least <= number and (most is None or number <= most)


def check_form(task: Task, configuration: Configuration) -> Found:
    """Yield where the task's framework or coupling does not allow the shape."""
    names = [
        [[choice.role for choice in pool.choices] for pool in phase.pools] for phase in configuration.phases
    ]
    order = [role.id for role in task.gpu_roles]
    several = len(names) > 1
    arrangement = arrangement_of(names)
    if len(order) > 1 and arrangement not in {allowed.value for allowed in task.arrangements}:
        yield Violation("arrangement", f"is {arrangement}, which it does not allow", task.id)
    phases = [[role for pool in phase for role in pool] for phase in names]
    runs = phases if task.coupling.kind is not CouplingKind.PIPELINED else [p for ph in names for p in ph]
    if not _are_runs(runs, order) or not _are_runs(phases, order):
        yield Violation("stage-order", "a phase or pipelined pool is not a run of stages in order", task.id)
    yield from check_filled(task, configuration)
    if several and any(role.pinned_gpus or role.excluded_gpus for role in task.roles):
        yield Violation("phases", "has several phases and pinned or excluded GPUs", task.id)
    if several and not any(len(phase) > 1 for phase in names):
        yield Violation("phases", "has several phases of one pool each, which is one pool", task.id)


def check_filled(task: Task, configuration: Configuration) -> Found:
    """Yield the roles that do not fill their pools, if roles of the task must."""
    if task.roles_fill_pools and any(
        choice.option.gpus != pool.gpus
        for phase in configuration.phases
        for pool in phase.pools
        for choice in pool.choices
    ):
        yield Violation(
            "pool", "has a role on some of its pool's GPUs, and its roles fill their pools", task.id
        )


def _are_runs(groups: list[list[str]], order: list[str]) -> bool:
    """Return whether the groups cut the stage order into runs; within a group the order is free."""
    places = [sorted(order.index(role) for role in group) for group in groups]
    return all(group[-1] - group[0] == len(group) - 1 for group in places) and [
        group[0] for group in places
    ] == sorted(group[0] for group in places)


def check_price(
    cluster: Cluster,
    task: Task,
    running: RunningTask,
    sizes: Mapping[str, int],
    times: Times | None = None,
) -> Found:
    """Yield where step time, memory, blocks or host needs do not follow from the configuration's options.

    `sizes` are the GPUs of the largest node of each class; `times` those of its step where they follow a law
    of their own.
    """
    configuration = running.configuration
    ways = turns_of(task, configuration)
    bounds = ("value", "low", "high")
    for name, stated, own in zip(bounds, _times(configuration), times or step_times(task, ways), strict=True):
        if not close(stated, own, EXACT):
            yield Violation("step-time", f"{name} is {stated} s, its options make {own} s", task.id)
    yield from _modes(task, configuration)
    yield from _blocks(sizes, task, configuration)
    peak = configuration_peak_mib(ways)
    if not close(peak, configuration.peak_mib, EXACT):
        message = f"says {configuration.peak_mib} MiB per GPU, its options make {peak}"
        yield Violation("memory-told", message, task.id)
    for gpu, need in _gpu_memory(running).items():
        room = cluster.gpus[gpu].memory_mib if gpu in cluster.gpus else 0.0
        if need > room + ROOM_MIB:
            message = f"needs {need:.0f} MiB, the GPU has {room:.0f}"
            yield Violation("memory", message, f"{task.id} on {gpu}")
    for phase, turns in zip(configuration.phases, ways, strict=True):
        for pool, turn in zip(phase.pools, turns, strict=True):
            host = (pool.cpu_cores_per_gpu, pool.host_memory_mib_per_gpu)
            if not all(close(a, b, EXACT) for a, b in zip(host, host_per_gpu(turn), strict=True)):
                yield Violation("host-told", "a pool misstates cores or host memory per GPU", task.id)


def _times(configuration: Configuration) -> tuple[float, float, float]:
    return configuration.step_time_s.value, configuration.step_time_s.low, configuration.step_time_s.high


def _modes(task: Task, configuration: Configuration) -> Found:
    """Check that roles sleep only where they can and must, and that phases share one mode."""
    pools = [pool for phase in configuration.phases for pool in phase.pools]
    several = len(configuration.phases) > 1
    if several and len({pool.memory_mode for pool in pools}) > 1:
        yield Violation("mode", "its phases do not share one memory mode", task.id)
    for pool in pools:
        if (several or len(pool.choices) > 1) and any(choice.option.stream for choice in pool.choices):
            yield Violation("mode", "a role that never pauses shares its GPUs in turns", task.id)
        if pool.memory_mode is not MemoryMode.SLEEP:
            continue
        options = [choice.option for choice in pool.choices]
        if any(option.sleep_s is None or option.wake_s is None for option in options):
            yield Violation("mode", "puts a role to sleep that cannot", task.id)
        if len(options) == 1 and not several:
            yield Violation("mode", "puts a role to sleep that has its GPUs to itself", task.id)


def _blocks(sizes: Mapping[str, int], task: Task, configuration: Configuration) -> Found:
    """Check that the stated blocks are those of the pools, or contain those of every phase."""
    for phase in configuration.phases:
        for pool in phase.pools:
            if pool.block_gpus != _largest(pool):
                yield Violation("blocks", "a pool's blocks are not its largest replica's size", task.id)
            elif pool.gpu_class in sizes:
                options = [choice.option for choice in pool.choices]
                node = sizes[pool.gpu_class]
                needed = max(blocks_needed(node, option, pool.block_gpus) for option in options)
                if pool.blocks != needed:
                    yield Violation("blocks", f"a pool has {pool.blocks} blocks for {needed}", task.id)
    needs = [Counter[tuple[str, int]]() for _ in configuration.phases]
    for need, phase in zip(needs, configuration.phases, strict=True):
        for pool in phase.pools:
            need[pool.gpu_class, pool.block_gpus] += pool.blocks
    stated = Counter({(gpu_class, size): number for gpu_class, size, number in configuration.blocks})
    if len(needs) == 1:
        right = stated == needs[0] and len(stated) == len(configuration.blocks)
    else:  # phases share blocks of the largest size
        largest = max(need for phase in needs for need in phase)
        most = max(sum(size * number for (_, size), number in need.items()) for need in needs)
        right = (
            len(configuration.blocks) == 1
            and configuration.blocks[0][:2] == largest
            and configuration.gpus >= most
        )
    if not right:
        yield Violation(
            "blocks", f"says blocks {configuration.blocks}, its pools have {list(needs)}", task.id
        )


def _largest(pool: Pool) -> int:
    return max(choice.option.layout.gpus_per_replica for choice in pool.choices)


def _gpu_memory(running: RunningTask) -> dict[GpuId, float]:
    """Return the memory of every GPU, MiB: each role at work, plus what the other roles there keep."""
    on_gpu: defaultdict[GpuId, list[tuple[StageOption, float]]] = defaultdict(list)
    mode_of = {
        choice.role: pool.memory_mode
        for phase in running.configuration.phases
        for pool in phase.pools
        for choice in pool.choices
    }
    for placed in running.roles:
        option = placed.choice.option
        kept = option.static_mib if mode_of[placed.role] is MemoryMode.RESIDENT else option.asleep_mib
        for gpu in set(placed.gpus):
            on_gpu[gpu].append((option, kept))
    return {
        gpu: max(option.peak_mib + sum(kept for _, kept in there) - own for option, own in there)
        for gpu, there in on_gpu.items()
    }

"""Build a configuration from pool options: step time with bounds, blocks, peak memory."""

from __future__ import annotations

from collections.abc import Callable

from libra_plan.models.quantities import Estimate, exactly, total
from libra_plan.models.rollout.streaming import Stream
from libra_plan.planner.configurations.joint import JointTask, step_of_pools_s
from libra_plan.planner.configurations.phases import coupled_time_s
from libra_plan.planner.configurations.pools import PoolOption
from libra_plan.planner.plan import Configuration, Phase
from libra_plan.planner.problem import Task

__all__ = ["build_configuration"]


def build_configuration(
    task: Task, phases: tuple[tuple[PoolOption, ...], ...], blocks: tuple[tuple[str, int, int], ...]
) -> Configuration:
    """Build a configuration; bounds of the step follow the same formula as its value."""
    pools = [option.pool for phase in phases for option in phase]
    handover_s = _handovers_s(task) if len(pools) > 1 else 0.0
    parts = total((choice.option.time_s for pool in pools for choice in pool.choices), "s")
    if handover_s or any(option.switching_s for phase in phases for option in phase):
        parts = parts.plus(exactly(0.0, "s"))  # switches are priced, not measured: weakest origin

    def step(read: Callable[[Estimate], float]) -> float:
        if isinstance(task, JointTask):
            return step_of_pools_s(task, phases[0], read)
        return handover_s + sum(coupled_time_s(_read(phase, read), task.coupling) for phase in phases)

    return Configuration(
        task=task.id,
        phases=tuple(Phase(tuple(option.pool for option in phase)) for phase in phases),
        step_time_s=Estimate(
            step(lambda time: time.value),
            step(lambda time: time.low),
            step(lambda time: time.high),
            "s",
            parts.origin,
            parts.rows,
        ),
        blocks=blocks,
        peak_mib=_peak_mib(phases),
    )


def _handovers_s(task: Task) -> float:
    return sum(each.sync_s for each in (task.members if isinstance(task, JointTask) else (task,)))


def _peak_mib(phases: tuple[tuple[PoolOption, ...], ...]) -> float:
    """Return the most a GPU has to hold: a pool's peak beside what the other phases leave there, MiB."""
    left = [max(option.left_behind_mib(option.pool.memory_mode) for option in phase) for phase in phases]
    return max(
        option.pool.peak_mib + sum(left) - own
        for phase, own in zip(phases, left, strict=True)
        for option in phase
    )


def _read(
    phase: tuple[PoolOption, ...], read: Callable[[Estimate], float]
) -> list[tuple[float, Stream | None]]:
    """Return the times of a phase's pools at one bound; streams are scaled to it, too."""
    found = []
    for option in phase:
        time_s, stream = option.pool.choices[0].option.time_s, option.stream
        own = None if stream is None else stream.scaled(read(time_s) / time_s.value)
        found.append((_pool_time(option, read), own))
    return found


def _pool_time(option: PoolOption, read: Callable[[Estimate], float]) -> float:
    return sum(read(choice.option.time_s) for choice in option.pool.choices) + option.switching_s

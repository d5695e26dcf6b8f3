"""The rules of a configuration, written a second time for the verifier: time, memory and shares of a node.

Nothing here is used to make a plan. A mistake in the planner's own arithmetic must not be able to
hide behind the same mistake in its check.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

from libra_plan.planner.plan import Configuration, MemoryMode
from libra_plan.planner.problem import Coupling, CouplingKind, Role, StageOption, Task

__all__ = [
    "Times",
    "Turn",
    "Violation",
    "arrangement_of",
    "close",
    "configuration_peak_mib",
    "host_per_gpu",
    "role_of",
    "step_times",
    "turns_of",
]


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule a plan breaks: a stable code, a sentence, and the task, role, node or GPU it is about."""

    code: str
    message: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message} ({self.code})"


def close(one: float, other: float, relative: float) -> bool:
    """Return whether two numbers are equal but for rounding."""
    return isclose(one, other, rel_tol=relative, abs_tol=1e-12)


def role_of(task: Task, name: str) -> Role:
    """Find a role of a task by its id."""
    return next(role for role in task.roles if role.id == name)


Times = tuple[float, float, float]
"""Value, low and high of a duration, seconds."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The roles that take one set of GPUs in turn, with their options and what a pause does."""

    roles: tuple[Role, ...]
    options: tuple[StageOption, ...]
    mode: MemoryMode

    @property
    def kept_mib(self) -> list[float]:
        """List what each role keeps on its GPUs while it pauses, MiB."""
        return [self.keeps(option) for option in self.options]

    def keeps(self, option: StageOption) -> float:
        """Return what one role keeps on a GPU while it pauses, MiB."""
        return option.static_mib if self.mode is MemoryMode.RESIDENT else option.asleep_mib


Ways = Sequence[Sequence[Turn]]


def turns_of(task: Task, configuration: Configuration) -> list[list[Turn]]:
    """Read the phases of a configuration as turns; every role must be one of the task's."""
    return [
        [
            Turn(
                tuple(role_of(task, choice.role) for choice in pool.choices),
                tuple(choice.option for choice in pool.choices),
                pool.memory_mode,
            )
            for pool in phase.pools
        ]
        for phase in configuration.phases
    ]


def step_times(task: Task, ways: Ways) -> Times:
    """Add up a step: phases follow each other, pools of a phase overlap as the coupling says."""
    phases = [_coupled(phase, task.coupling) for phase in ways]
    apart = sum(len(phase) for phase in ways) > 1
    handed_over = task.sync_s if apart else 0.0
    value, low, high = (sum(phase[bound] for phase in phases) + handed_over for bound in range(3))
    return value, low, high


def _turn_times(turn: Turn) -> Times:
    switch = 0.0
    if turn.mode is MemoryMode.SLEEP:
        switch = sum((option.sleep_s or 0.0) + (option.wake_s or 0.0) for option in turn.options)
    times = [option.time_s for option in turn.options]
    return (
        sum(time.value for time in times) + switch,
        sum(time.low for time in times) + switch,
        sum(time.high for time in times) + switch,
    )


def _coupled(turns: Sequence[Turn], coupling: Coupling) -> Times:
    pools = [_turn_times(turn) for turn in turns]
    value, low, high = (
        max(_one_bound([pool[bound] for pool in pools], coupling), _stale_s(turns, pools, bound, coupling))
        for bound in range(3)
    )
    return value, low, high


def _stale_s(turns: Sequence[Turn], pools: list[Times], bound: int, coupling: Coupling) -> float:
    """Return the shortest step in which an async phase has at most 1 + η steps' trajectories in flight.

    Batches: each is in one pool at a time. Streams: a trajectory is generated, waits half a step for its
    batch, and is held while the other pools have that.
    """
    if coupling.kind is not CouplingKind.ASYNC:
        return 0.0
    streams = [turn.options[0].stream is not None for turn in turns]
    rest_s = sum(times[bound] for times, streamed in zip(pools, streams, strict=True) if not streamed)
    if not any(streams):
        return rest_s / (1 + coupling.staleness)
    work_s = latency_s = 0.0
    for turn, times in zip(turns, pools, strict=True):
        stream = turn.options[0].stream
        if stream is not None:
            work_s = max(work_s, stream.work_s * times[bound] / times[0])
            latency_s = max(latency_s, stream.latency_s * times[bound] / times[0])
    least, most = work_s, work_s + latency_s + rest_s + 1.0
    for _ in range(200):
        step_s = (least + most) / 2.0
        generating_s = math.inf if step_s <= work_s else latency_s * step_s / (step_s - work_s)
        if generating_s + step_s / 2.0 + rest_s > (1 + coupling.staleness) * step_s:
            least = step_s
        else:
            most = step_s
    return most


def _one_bound(times: list[float], coupling: Coupling) -> float:
    if coupling.kind is CouplingKind.SYNC:
        return sum(times)
    if coupling.kind is CouplingKind.ASYNC:
        return max(times)
    share = 1.0 / (coupling.groups or 1)
    return share * sum(times) + (1.0 - share) * max(times)


def configuration_peak_mib(ways: Ways) -> float:
    """Return the most a GPU may have to hold, MiB.

    That is a role at work, what the others of its pool keep, and the most that pools of each other
    phase keep.
    """
    kept = [max(sum(turn.kept_mib) for turn in phase) for phase in ways]
    return max(
        _turn_peak_mib(turn) + sum(kept) - kept[number] for number, phase in enumerate(ways) for turn in phase
    )


def _turn_peak_mib(turn: Turn) -> float:
    everything = sum(turn.kept_mib)
    return max(option.peak_mib + everything - turn.keeps(option) for option in turn.options)


def host_per_gpu(turn: Turn) -> tuple[float, float]:
    """Return the CPU cores and the host memory (MiB) that one GPU of the pool takes on its node."""
    cores = sum(role.cpu_cores_per_gpu for role in turn.roles)
    memory_mib = sum(role.host_memory_mib_per_gpu for role in turn.roles)
    memory_mib += sum(option.offloaded_host_mib for option in turn.options)
    if turn.mode is MemoryMode.SLEEP:
        memory_mib += sum(option.host_static_mib for option in turn.options)
    return cores, memory_mib


def arrangement_of(pools_of_phases: Sequence[Sequence[Sequence[str]]]) -> str:
    """Name the shape: `colocated` one pool, `separate` every role apart at once, else `hybrid`."""
    if len(pools_of_phases) > 1:
        return "hybrid"
    (pools,) = pools_of_phases
    if len(pools) == 1:
        return "colocated"
    return "separate" if all(len(pool) == 1 for pool in pools) else "hybrid"

"""What the loop remembers from one look to the next. Frozen: a look gives the next state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from libra_plan.models.topology import GpuId
from libra_plan.planner.telemetry.observations import Moment

__all__ = ["Clock", "LoopState", "Pending", "Stays", "TaskClock", "Tracked"]


@dataclass(frozen=True, slots=True)
class Tracked:
    """A smoothed ln(seen ÷ predicted seconds) of a role in a form; `form` "" is for all its forms.

    `looks` counts what `level` rests on (bounded by the policy), `variance` is that of one look,
    `recent` the last residuals, oldest first.
    """

    task: str
    role: str
    gpu_class: str
    form: str
    level: float
    looks: float
    variance: float
    recent: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds the loop has lived through (`loop_s` never goes back) and the last moment it saw."""

    loop_s: float = 0.0
    last: Moment | None = None


@dataclass(frozen=True, slots=True)
class TaskClock:
    """When a task was placed as it is (`placed_s`), its elastic GPUs shifted, memory ran out: loop seconds.

    `waits_since_s` is set while it is queued. `progressed`: it has done steps since it was placed.
    `oom_mib` lists roles with the memory (MiB per GPU) they were planned with when it ran out.
    """

    task: str
    placed_s: float | None = None
    shifted_s: float | None = None
    oom_s: float | None = None
    oom_mib: tuple[tuple[str, float], ...] = ()
    waits_since_s: float | None = None
    progressed: bool = False


@dataclass(frozen=True, slots=True)
class Pending:
    """A change that looks have asked for in a row: of a task, in a direction, so many times."""

    task: str
    direction: str
    looks: int


@dataclass(frozen=True, slots=True)
class Stays:
    """Stays that ended: how many, and their seconds in all."""

    ended: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class LoopState:
    """All of it. Tuples are sorted by task, so that equal states are equal bytes.

    `tasks` (id, weight) and `gpus` are those of the last look, to tell what came and went, `lost` those that
    telemetry called lost, and why; `prices` are
    those of the last search by row name; `batches` counts looks that asked for a batch or elastic step.
    """

    looks: int = 0
    clock: Clock = Clock()
    tracked: tuple[Tracked, ...] = ()
    clocks: tuple[TaskClock, ...] = ()
    pending: tuple[Pending, ...] = ()
    stays: Stays = Stays()
    tasks: tuple[tuple[str, float], ...] = ()
    gpus: tuple[GpuId, ...] = ()
    lost: tuple[tuple[GpuId, str], ...] = ()
    quotas: str = ""
    paused: tuple[str, ...] = ()
    prices: tuple[tuple[str, float], ...] = ()
    batches: tuple[Pending, ...] = ()

    @cached_property
    def clock_of(self) -> dict[str, TaskClock]:
        """Map tasks to their clocks."""
        return {each.task: each for each in self.clocks}

    def clock_for(self, task: str) -> TaskClock:
        """Give a task's clock; one that was never seen has no times."""
        return self.clock_of.get(task, TaskClock(task))

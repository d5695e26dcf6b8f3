"""Observations that a re-plan decision rests on. What is unknown is None or missing, never 0."""

from __future__ import annotations

from enum import Enum

from libra_plan.models.topology import GpuId
from libra_plan.profiles.schema_base import File

__all__ = [
    "BatchStep",
    "CheckpointAge",
    "Event",
    "EventKind",
    "Moment",
    "Observations",
    "ObservedTime",
    "RoleLoad",
    "TaskProgress",
]


class Moment(File, frozen=True):
    """A moment on both clocks: seconds since 1970, and seconds since the boot that `boot` names.

    Durations are taken from the second, which nobody sets (A078).
    """

    wall_s: float
    boot_s: float
    boot: str = ""


class ObservedTime(File, frozen=True):
    """The seconds that a role's stage was observed to take per step, in a form such as `2 × tp4`.

    Without `form` it is the form that the role runs in, without `gpu_class` the class that it runs on.
    """

    task: str
    role: str
    seconds: float
    form: str | None = None
    gpu_class: str | None = None


class RoleLoad(File, frozen=True):
    """The load of a role: its queue pressure from 0 (idle) to 1 (full), staleness, busy share of each GPU."""

    task: str
    role: str
    queue: float | None = None
    staleness: float | None = None
    gpus_busy: tuple[float, ...] = ()


class TaskProgress(File, frozen=True):
    """Steps a task has done since it was placed."""

    task: str
    steps: float


class CheckpointAge(File, frozen=True):
    """Age of the newest complete checkpoint of a task, seconds; None: it has none."""

    task: str
    age_s: float | None


class BatchStep(File, frozen=True):
    """A change of a batch setting that fits memory, and the share of step time it saves, at least."""

    task: str
    role: str
    setting: str
    before: float
    after: float
    saves: float


class EventKind(str, Enum):
    """What happened."""

    GPU_LOST = "gpu-lost"
    GPU_RETURNED = "gpu-returned"
    NODE_LOST = "node-lost"
    NODE_RETURNED = "node-returned"
    OUT_OF_MEMORY = "out-of-memory"
    TASK_ARRIVED = "task-arrived"
    TASK_FINISHED = "task-finished"
    TASK_PAUSED = "task-paused"
    TASK_RESUMED = "task-resumed"
    PRIORITY_CHANGED = "priority-changed"
    QUOTA_CHANGED = "quota-changed"


class Event(File, frozen=True):
    """An event that the loop acts on at once; `detail` is for people (`XID 79`)."""

    kind: EventKind
    task: str | None = None
    gpu: GpuId | None = None
    node: str | None = None
    detail: str = ""


class Observations(File, frozen=True):
    """Observations up to `until_s` (seconds since 1970)."""

    until_s: float
    seen: tuple[ObservedTime, ...] = ()
    loads: tuple[RoleLoad, ...] = ()
    progress: tuple[TaskProgress, ...] = ()
    checkpoints: tuple[CheckpointAge, ...] = ()
    batch_steps: tuple[BatchStep, ...] = ()
    events: tuple[Event, ...] = ()

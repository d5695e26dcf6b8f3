"""What a supervisor writes down before and after it acts; its memory is made of nothing else."""

from __future__ import annotations

import msgspec

from libra_plan.planner.launchers.manifest import Lifecycle, Transition

__all__ = [
    "Back",
    "Begun",
    "Entry",
    "Finished",
    "Gone",
    "Intent",
    "Killing",
    "Never",
    "Opened",
    "Ordered",
    "Record",
    "Released",
    "RoleStart",
    "Saved",
    "Started",
    "StepFailed",
    "Stopping",
    "Stuck",
    "Through",
    "Withdrawn",
]


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class Opened(_Record, frozen=True, tag="opened"):
    """A folder becomes a run: `launch_id` marks every process it will ever start."""

    launch_id: str
    node: str
    working_folder: str


class Begun(_Record, frozen=True, tag="begun"):
    """A hand-over begins, to the manifest with this digest (None: to nothing)."""

    target: str | None
    generation: int | None
    steps: tuple[Transition, ...]
    force: bool


class Back(_Record, frozen=True, tag="back"):
    """It is called off, or once more: these steps lead from what is now to where it began."""

    reason: str
    steps: tuple[Transition, ...]
    force: bool


class Ordered(_Record, frozen=True, tag="ordered"):
    """A checkpoint is asked for: one that names `request`, or is newer than `after_step`."""

    task: str
    request: str
    generation: int
    folder: str
    after_step: int | None


class Saved(_Record, frozen=True, tag="saved"):
    """The checkpoint is complete; a None step: none was to be had, and the user forces the move."""

    task: str
    step: int | None
    save_s: float | None


class Withdrawn(_Record, frozen=True, tag="withdrawn"):
    """The request is taken back: the task goes on where it is."""

    task: str


class Stopping(_Record, frozen=True, tag="stopping"):
    """The stop signal goes to every process of the task."""

    task: str


class Killing(_Record, frozen=True, tag="killing"):
    """What outlived the grace is killed: the user forces the move."""

    task: str


class Gone(_Record, frozen=True, tag="gone"):
    """No process of the task is left, and this is known of the memory of its GPUs: free or unknown."""

    task: str
    memory: str


class RoleStart(_Record, frozen=True):
    """A role, and the number of its start, which every process of it carries.

    `lifecycle` says how it is stopped, whatever becomes of its manifest.
    """

    start: int
    task: str
    role: str
    generation: int
    gpus: tuple[str, ...]
    trains: bool
    world_size: int
    lifecycle: Lifecycle
    log: str
    progress: str


class Intent(RoleStart, frozen=True, tag="intent"):
    """A role is about to be started."""


class Started(_Record, frozen=True, tag="started"):
    """The process exists on `host`, and waits to be released before it becomes the role.

    `start_time` counts seconds since that host was started.
    """

    start: int
    pid: int
    start_time: float
    host: str


class Released(_Record, frozen=True, tag="released"):
    """The process was let go: the role runs."""

    start: int


class Never(_Record, frozen=True, tag="never"):
    """The process ended before it was released, so the role never ran."""

    start: int


class StepFailed(_Record, frozen=True, tag="step-failed"):
    """A step did not come about within its deadline."""

    step: str
    reason: str


class Through(_Record, frozen=True, tag="through"):
    """A step is done."""

    step: str


class Finished(_Record, frozen=True, tag="finished"):
    """The hand-over is over, and the manifest with this digest runs (None: nothing does)."""

    running: str | None
    back: bool


class Stuck(_Record, frozen=True, tag="stuck"):
    """Even the way back failed: what runs is neither plan, and a person must look."""

    reason: str


Record = (
    Opened
    | Begun
    | Back
    | Ordered
    | Saved
    | Withdrawn
    | Stopping
    | Killing
    | Gone
    | Intent
    | Started
    | Released
    | Never
    | StepFailed
    | Through
    | Finished
    | Stuck
)


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the journal.

    `at` is UTC, for people. `boot_s` counts seconds since the host was started, which no clock step
    changes: durations are differences of it. `sum` is over the line before and this one.
    """

    number: int
    at: str
    boot_s: float
    record: Record
    sum: str = ""

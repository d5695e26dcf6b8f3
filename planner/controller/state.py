"""The loop's state between looks, the decision of a look, and both as bytes for the record.

Field names are part of the record: stores of earlier versions are read by them.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from libra_plan.models.topology import GpuId
from libra_plan.planner.plan import Plan
from libra_plan.planner.runtime.settings import boot_clock
from libra_plan.planner.telemetry.observations import BatchStep, Event, Moment

__all__ = [
    "Clock",
    "Considered",
    "Decision",
    "LoopState",
    "Move",
    "Pending",
    "RateEstimate",
    "Rung",
    "Stays",
    "TaskClock",
    "digest_of",
    "from_bytes",
    "read_clocks",
    "to_bytes",
]

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class RateEstimate:
    """The average of ln(observed ÷ predicted seconds) of a role in a form; `form` "" is for all its forms.

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
    """A change of a task, by its action, that so many looks in a row have asked for."""

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
    """The loop's whole state. Tuples are sorted, so that equal states are equal bytes.

    `tasks` (name and weight) and `gpus` are those of the last look, which show what came and went. `lost`
    are the GPUs that telemetry reported as lost, and why. `prices` are those of the last search, by
    constraint. `batches` counts looks that asked for a batch step or an elastic shift.
    """

    looks: int = 0
    clock: Clock = Clock()
    tracked: tuple[RateEstimate, ...] = ()
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
        """Return a task's clock; that of a task never seen has no times."""
        return self.clock_of.get(task, TaskClock(task))


class Rung(str, Enum):
    """The kinds of change, cheapest first. Only the last two may move models to other GPUs."""

    KEEP = "keep"
    BATCHES = "step-batches"
    ELASTIC = "shift-elastic"
    ROLES = "re-plan-roles"
    TASKS = "move-tasks"


@dataclass(frozen=True, slots=True)
class Move:
    """The change of one task: `start`, `pause`, `grow`, `shrink`, `move` or `shift`.

    `worth` is what the task brings after less what it brought before, `doubt` what of it the models
    may be wrong by, `cost` what the switch loses: all in weighted fair shares over the horizon.
    """

    task: str
    action: str
    gpus_before: int
    gpus_after: int
    worth: float
    doubt: float
    cost: float
    switch_s: float
    after: str = ""


@dataclass(frozen=True, slots=True)
class Considered:
    """A kind of change that was considered: its net gain at the lower end, and the verdict."""

    rung: Rung
    net: float
    moves: tuple[Move, ...]
    verdict: str


@dataclass(frozen=True)
class Decision:
    """The outcome of a look.

    `rule` is a stable code (docs/replan.md lists them), `why` a sentence. `gain` is expected, `net` at
    the lower end after switch cost and threshold, in weighted fair shares (None: nothing was weighed).
    `plan` is the plan to adopt, None when what runs is kept. `orders` are asked of others first, as
    `checkpoint:TASK`. `bound` is what no plan exceeds at today's figures, `running` what runs is worth.
    """

    rung: Rung
    rule: str
    why: str
    moves: tuple[Move, ...] = ()
    gain: float | None = None
    net: float | None = None
    cost: float | None = None
    horizon_s: float | None = None
    running: float | None = None
    bound: float | None = None
    considered: tuple[Considered, ...] = ()
    batch_steps: tuple[BatchStep, ...] = ()
    events: tuple[Event, ...] = ()
    orders: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    plan: Plan | None = None


def to_bytes(value: object) -> bytes:
    """Encode a value; equal values are equal bytes, and floats keep every bit."""
    return _ENCODER.encode(value)


def from_bytes(data: bytes, kind: type[ValueT]) -> ValueT:
    """Decode what `to_bytes` made."""
    return msgspec.msgpack.decode(data, type=kind)


def digest_of(data: bytes) -> str:
    """Return `sha256:…` of bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def read_clocks() -> Moment:
    """Read both clocks: the wall's, and that of this boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return Moment(time.time(), boot_clock(), boot)  # noqa: TID251 - the only place where the loop reads a clock

"""What a finding is, and what finds one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from libra_plan.planner.doctor.evidence import Evidence
    from libra_plan.planner.doctor.settings import Thresholds

__all__ = ["Finder", "Finding", "Gain", "Level", "Need", "bound_of"]


class Level(str, Enum):
    """How bad: `note` leaves something on the table, `warning` costs now, `critical` stops the run."""

    NOTE = "note"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Give the place in the order of badness."""
        return list(Level).index(self)


class Need(str, Enum):
    """What a finder must have seen before its silence means anything."""

    GPUS = "utilization of GPUs (`monitor --out`)"
    MEMORY = "memory of GPUs (`monitor --out`)"
    HOSTS = "CPU and memory of hosts (`monitor --out` on each node)"
    TRAFFIC = "traffic of GPUs or hosts"
    ROLES = "counts of roles (`libra_plan.counter`, or --reader)"
    TRAINING = "counts of a training role and of a rollout (`libra_plan.counter`, or --reader)"
    WAITING = "waiting times of roles (`counter.waiting()`)"
    QUEUES = "lengths of queues (`counter.queue()`)"
    JOINED = "GPU samples and counts of the same time, and whose GPUs they are (--manifest)"
    PLACEMENT = "whose the GPUs are (--manifest)"
    MOVES = "recorded moves (switch_costs.jsonl or replan.db in the folder of --manifest)"


@dataclass(frozen=True, slots=True)
class Gain:
    """How much faster the task could be: `factor` 1.2 is a fifth more throughput; None: not known.

    A `bound` says that it cannot be more, from what was seen; an `estimate` that a plan predicts it.
    """

    kind: Literal["bound", "estimate", "unknown"]
    factor: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that holds the pipeline back.

    `figures` are the evidence as numbers, units in their names; `evidence` is the same as a sentence.
    `began_s` and `ended_s` (seconds since 1970 where the recording says so) are the window it was
    seen in. `task`, `role`, `node` and `gpus` name whose it is, as far as that is known.
    """

    code: str
    level: Level
    title: str
    began_s: float
    ended_s: float
    evidence: str
    cause: str
    advice: str
    gain: Gain
    figures: dict[str, float] = field(default_factory=dict)
    task: str | None = None
    role: str | None = None
    node: str | None = None
    gpus: tuple[str, ...] = ()


class Finder(Protocol):
    """Looks for one thing; a stable `code`, and what it `needs`, all of it."""

    @property
    def code(self) -> str:
        """Give the code that scripts rely on."""
        ...

    @property
    def needs(self) -> tuple[Need, ...]:
        """Give what must have been recorded."""
        ...

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each task, role, node or GPU concerned."""
        ...


def bound_of(lost_share: float, what: str) -> Gain:
    """Bound the gain of getting rid of a lost share of time: at most 1 ÷ (1 − share)."""
    if lost_share >= 1.0:
        return Gain("unknown", None, f"not to be bounded: {what} is all of the time")
    factor = 1.0 / (1.0 - max(lost_share, 0.0))
    return Gain("bound", factor, f"at most × {factor:.2f}, if {what} went away entirely (a bound)")

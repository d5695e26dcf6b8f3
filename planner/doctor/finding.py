"""Findings and finders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from libra_plan.planner.doctor.evidence import Evidence
    from libra_plan.planner.doctor.settings import Thresholds
    from libra_plan.planner.doctor.tracks import Spell

__all__ = [
    "Finder",
    "Finding",
    "Gain",
    "Level",
    "Need",
    "bound_of",
    "duration",
    "finder",
    "finding",
    "unknown",
]


class Level(str, Enum):
    """How bad: a `note` is an opportunity, a `warning` costs now, `critical` stops the run."""

    NOTE = "note"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """The place in the order of badness."""
        return list(Level).index(self)


class Need(str, Enum):
    """Recordings that a finder needs before the absence of a finding means anything."""

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

    A `bound` cannot be exceeded, from what was seen; an `estimate` is what a plan predicts.
    """

    kind: Literal["bound", "estimate", "unknown"]
    factor: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that slows the pipeline down.

    `figures` are the evidence as numbers, with units in their names; `evidence` is the same as a
    sentence. It was seen from `began_s` to `ended_s` (seconds since 1970 where the recording has them).
    `task`, `role`, `node` and `gpus` are whose it is, as far as that is known.
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


Look = Callable[["Evidence", "Thresholds"], Iterator[Finding]]


@dataclass(frozen=True)
class Finder:
    """Looks for one problem: a stable `code` that scripts rely on, and all that must have been recorded."""

    code: str
    needs: tuple[Need, ...]
    look: Look

    def find(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Yield a finding for each task, role, node or GPU concerned."""
        for found in self.look(evidence, limits):
            yield replace(found, code=self.code)


def finder(code: str, *needs: Need) -> Callable[[Look], Finder]:
    """Make a finder of a function that yields findings."""
    return lambda look: Finder(code, needs, look)


def finding(
    level: Level,
    title: str,
    when: Spell,
    evidence: str,
    why: tuple[str, str],
    gain: Gain,
    figures: dict[str, float],
    **whose: Any,
) -> Finding:
    """Build a finding; `why` is cause and advice, and the finder adds its code."""
    return Finding("", level, title, when.began_s, when.ended_s, evidence, *why, gain, figures, **whose)


def bound_of(lost_share: float, what: str) -> Gain:
    """Bound the gain of removing a lost share of time: at most 1 ÷ (1 − share)."""
    if lost_share >= 1.0:
        return unknown(f"not to be bounded: {what} is all of the time")
    factor = 1.0 / (1.0 - max(lost_share, 0.0))
    return Gain("bound", factor, f"at most × {factor:.2f}, if {what} went away entirely (a bound)")


def unknown(text: str) -> Gain:
    """Return a gain that is not known, and why or what it is about."""
    return Gain("unknown", None, text)


def duration(seconds: float) -> str:
    """Write seconds in the unit that people think in."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

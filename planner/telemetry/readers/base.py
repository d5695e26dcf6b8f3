"""What every reader is made of, and how a step's log becomes windows of its roles.

A trainer logs one record a step: how long the step took and how long each stage of it. Steps are
laid end to end, since few logs say when they were. Of every role there is one window a step, as long
as the step; what is left of it beside the role's own stage is waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.work_windows import Rejected, WorkWindow
from libra_plan.profiles.importers.records import Record, Source

__all__ = ["Reader", "ReaderFacts", "StageTime", "StepLog", "step_windows"]


@dataclass(frozen=True)
class ReaderFacts:
    """What a log does not say: the task, GPUs that its rates per GPU are of, samples of a step."""

    task: str = ""
    gpus: int | None = None
    samples: int | None = None

    def demand_gpus(self, what: str) -> int:
        """Give the GPUs, or say what they are needed for."""
        if self.gpus is None:
            raise InputError(
                f"{what} gives tokens only as a rate per GPU",
                got="no --gpus",
                allowed="--gpus N, of the whole run",
                way_out="add --gpus",
            )
        return self.gpus


@dataclass(frozen=True)
class Reader:
    """A reader by name: what it reads, the files it lies in, and how."""

    name: str
    summary: str
    endings: tuple[str, ...]
    read: Callable[[Source, ReaderFacts, list[Rejected]], Iterator[WorkWindow]]


@dataclass(frozen=True, slots=True)
class StageTime:
    """A role's stage of a step: its seconds, and the tokens it went over, where known."""

    role: str
    seconds: float
    tokens: float | None = None


@dataclass(frozen=True, kw_only=True)
class StepLog:
    """A step as a log has it. `waits` are seconds a role says it waited, beside its own stage."""

    where: str
    step_s: float
    stages: tuple[StageTime, ...]
    samples: float | None = None
    queues: Mapping[str, float] = field(default_factory=dict)
    staleness: float | None = None
    waits: Mapping[str, float] = field(default_factory=dict)


def step_windows(steps: Iterator[StepLog], task: str, rejected: list[Rejected]) -> Iterator[WorkWindow]:
    """Lay steps end to end and give a window for each role of each."""
    at_s = 0.0
    for step in steps:
        if not step.step_s > 0:
            rejected.append(Rejected(step.where, f"the step took {step.step_s:g} s"))
            continue
        start_s, at_s = at_s, at_s + step.step_s
        for stage in step.stages:
            waited = step.waits.get(stage.role, max(step.step_s - stage.seconds, 0.0))
            yield WorkWindow(
                start_s=start_s,
                end_s=at_s,
                task=task,
                role=stage.role,
                source=stage.role,
                clock="steps",
                tokens=stage.tokens,
                samples=step.samples,
                steps=1.0,
                waiting_s=min(waited, step.step_s),
                queues=dict(step.queues),
                longest=dict(step.queues),
                staleness=step.staleness,
            )


def seconds_of(record: Record, roles: Mapping[str, str]) -> dict[str, float]:
    """Give the seconds of each role of which a record has a key, the first of them."""
    found: dict[str, float] = {}
    for key, role in roles.items():
        seconds = record.positive(key)
        if seconds is not None:
            found.setdefault(role, seconds)
    return found

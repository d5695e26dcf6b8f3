"""The parts of every reader, and how the log of a step becomes windows of its roles.

A trainer logs one record a step: how long the step took and how long each stage of it. Steps are
laid end to end, since few logs say when they were. Each role has one window a step, as long as the
step; the rest of it beside the role's own stage is waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.work_windows import SkippedRecord, WorkWindow
from libra_plan.profiles.importers.records import SourceFiles, SourceRecord, records

__all__ = [
    "Reader",
    "ReaderFacts",
    "StageTime",
    "StepLog",
    "records_reader",
    "stages_of",
    "step_windows",
    "wait_of",
]


@dataclass(frozen=True)
class ReaderFacts:
    """Facts that a log may lack: the task, the GPUs of the run, the samples of a step."""

    task: str = ""
    gpus: int | None = None
    samples: int | None = None

    def demand_gpus(self, what: str) -> int:
        """Return the GPUs; raise an InputError that says what they are needed for."""
        if self.gpus is None:
            raise InputError(
                f"{what} gives tokens only as a rate per GPU",
                got="no gpus (--gpus)",
                allowed="--gpus N, of the whole run",
                way_out="add gpus (--gpus)",
            )
        return self.gpus


@dataclass(frozen=True)
class Reader:
    """A reader by name: what it reads, the endings of its files, and how."""

    name: str
    summary: str
    endings: tuple[str, ...]
    read: Callable[[SourceFiles, ReaderFacts, list[SkippedRecord]], Iterator[WorkWindow]]


@dataclass(frozen=True, slots=True)
class StageTime:
    """A role's stage of a step: its seconds, and the tokens it went over, where known."""

    role: str
    seconds: float
    tokens: float | None = None


@dataclass(frozen=True, kw_only=True)
class StepLog:
    """A step as a log has it. `waits` are the seconds a role states it waited, beside its own stage."""

    where: str
    step_s: float
    stages: tuple[StageTime, ...]
    samples: float | None = None
    queues: Mapping[str, float] = field(default_factory=dict)
    staleness: float | None = None
    waits: Mapping[str, float] = field(default_factory=dict)


def records_reader(
    name: str, summary: str, step: Callable[[SourceRecord, ReaderFacts], StepLog | None], needs: str
) -> Reader:
    """Build a reader of JSON lines or CSV with one record a step; one without a step `needs` the key."""

    def read(source: SourceFiles, facts: ReaderFacts, left_out: list[SkippedRecord]) -> Iterator[WorkWindow]:
        return step_windows(steps(source, facts, left_out), facts.task, left_out)

    def steps(source: SourceFiles, facts: ReaderFacts, left_out: list[SkippedRecord]) -> Iterator[StepLog]:
        for record in records(source):
            found = step(record, facts)
            if found is None:
                left_out.append(SkippedRecord(record.where, f"no {needs}"))
            else:
                yield found

    return Reader(name, summary, (".jsonl", ".csv", ".json"), read)


def step_windows(steps: Iterator[StepLog], task: str, left_out: list[SkippedRecord]) -> Iterator[WorkWindow]:
    """Place steps one after the other, and yield a window for each role of each step."""
    at_s = 0.0
    for step in steps:
        if not step.step_s > 0:
            left_out.append(SkippedRecord(step.where, f"the step took {step.step_s:g} s"))
            continue
        start_s, at_s = at_s, at_s + step.step_s
        for stage in step.stages:
            waited_s = step.waits.get(stage.role, max(step.step_s - stage.seconds, 0.0))
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
                waiting_s=min(waited_s, step.step_s),
                queues=dict(step.queues),
                longest=dict(step.queues),
                staleness=step.staleness,
            )


def stages_of(
    record: SourceRecord, roles: Mapping[str, str], tokens: float | None, generated: float | None
) -> tuple[StageTime, ...]:
    """Return the stage of each role of which a record has a key, the first of them.

    A rollout goes over the tokens it generates, every other role over all of them.
    """
    found: dict[str, float] = {}
    for key, role in roles.items():
        seconds = record.positive(key)
        if seconds is not None:
            found.setdefault(role, seconds)
    return tuple(
        StageTime(role, seconds, generated if role == "rollout" else tokens)
        for role, seconds in found.items()
    )


def wait_of(record: SourceRecord, *keys: str) -> dict[str, float]:
    """Return the actor's waiting time, where the record states one."""
    waited_s = record.number(*keys)
    return {} if waited_s is None else {"actor": waited_s}

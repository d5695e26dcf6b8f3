"""The record of a run, and its forms: JSON lines, Chrome's trace format, GPUs over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from libra_plan.models.lengths import FloatArray

__all__ = [
    "Band",
    "Change",
    "PlacedSpan",
    "RolloutSeen",
    "RunRecord",
    "StageDone",
    "StepDone",
    "bins",
    "chrome_trace",
    "held",
    "json_lines",
    "used",
]


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step that ended: `step` from 0, second it ended, samples, tokens, mean response, staleness seen."""

    task: str
    step: int
    at_s: float
    samples: int
    tokens: float
    mean_response: float
    stale: int


@dataclass(frozen=True, slots=True)
class StageDone:
    """A stage of a role: when it began, how long, on how many GPUs, and the GPU-seconds it used of them."""

    task: str
    role: str
    begun_s: float
    seconds: float
    gpus: int
    busy_gpu_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """A task's placement changed: when, GPUs before and after, seconds it then took to start, and why.

    `drained_s` is how long it waited, without its GPUs being used, for others to end their steps.
    """

    task: str
    at_s: float
    gpus_before: int
    gpus_after: int
    start_s: float
    drained_s: float
    why: str


@dataclass(frozen=True, slots=True)
class RolloutSeen:
    """GPU-seconds that rollouts of a task had used up to a look."""

    task: str
    at_s: float
    busy_gpu_s: float


@dataclass(frozen=True, slots=True)
class PlacedSpan:
    """A stretch of time in which a task held so many GPUs per role, and of each replica of it.

    `pools` counts the GPUs themselves: roles that take the same ones in turn are one, joined by `+`.
    """

    task: str
    from_s: float
    to_s: float
    roles: tuple[tuple[str, int], ...]
    replicas: tuple[tuple[str, tuple[int, ...]], ...]
    pools: tuple[tuple[str, int], ...]


@dataclass
class RunRecord:
    """All of a run. GPU-seconds: `busy` by (task, role), `held` by task, `lost` to switching by task."""

    world: str
    policy: str
    seed: int
    hours: float
    gpus: int
    steps: list[StepDone] = field(default_factory=list)
    stages: list[StageDone] = field(default_factory=list)
    rollouts: list[RolloutSeen] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    placements: list[PlacedSpan] = field(default_factory=list)
    failures: list[tuple[float, str, float]] = field(default_factory=list)
    busy_gpu_s: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    held_gpu_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    lost_gpu_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    finished_s: dict[str, float] = field(default_factory=dict)
    arrived_s: dict[str, float] = field(default_factory=dict)
    decide_s: list[float] = field(default_factory=list)
    events: int = 0
    keeps_stages: bool = False

    def stage(self, done: StageDone) -> None:
        """Count a stage; keep it when traces are wanted."""
        self.busy_gpu_s[done.task, done.role] += done.busy_gpu_s
        if self.keeps_stages:
            self.stages.append(done)


# ------------------------------------------------------------ traces


def json_lines(record: RunRecord) -> Iterator[bytes]:
    """Return steps, stages, changes, placements and failures, each kind in the order of time."""
    head = {"kind": "run", "world": record.world, "policy": record.policy, "seed": record.seed}
    yield msgspec.json.encode({**head, "hours": record.hours, "gpus": record.gpus})
    for kind, rows in (
        ("step", record.steps),
        ("stage", record.stages),
        ("change", record.changes),
        ("placement", record.placements),
    ):
        for row in rows:
            yield msgspec.json.encode({"kind": kind, **msgspec.to_builtins(row)})
    for at, gpu, repair in sorted(record.failures):
        yield msgspec.json.encode({"kind": "failure", "at_s": at, "gpu": gpu, "repair_s": repair})


def chrome_trace(record: RunRecord) -> bytes:
    """Return a row per task and role: stages as slices, moves, steps and failures as marks; microseconds."""
    tasks = {name: number for number, name in enumerate(sorted(record.arrived_s), start=1)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
        for name, number in tasks.items()
    ]
    for stage in record.stages:
        events.append(_slice(stage.role, tasks[stage.task], stage.role, stage.begun_s, stage.seconds,
                             {"gpus": stage.gpus}))  # fmt: skip
    for held in record.placements:
        seconds = held.to_s - held.from_s
        events.append(_slice("placed", tasks[held.task], "placement", held.from_s, seconds, dict(held.roles)))
    for change in record.changes:
        args = {"gpus_before": change.gpus_before, "gpus_after": change.gpus_after}
        events.append(_slice(change.why, tasks[change.task], "moves", change.at_s, change.start_s, args))
    for step in record.steps:
        events.append({"ph": "i", "s": "p", "name": f"step {step.step}", "pid": tasks[step.task],
                       "tid": "steps", "ts": step.at_s * 1e6})  # fmt: skip
    for at, gpu, repair in record.failures:
        events.append(_slice(f"{gpu} failed", 0, "failures", at, repair, {}))
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _slice(
    name: str, pid: int, tid: str, begun_s: float, seconds: float, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": begun_s * 1e6,
        "dur": seconds * 1e6,
        "args": args,
    }


# ------------------------------------------------------------ GPUs over time


@dataclass(frozen=True)
class Band:
    """Mean GPUs of a task in each bin. `part`: roles that hold them together, or the role that works."""

    task: str
    part: str
    gpus: FloatArray


def bins(record: RunRecord, least_s: float, most: int = 240) -> FloatArray:
    """Return the edges of equal bins over the run, seconds: none shorter than `least_s`, not above `most`."""
    seconds = record.hours * 3600.0
    count = max(1, min(most, int(seconds / least_s + 1e-9)))
    return np.linspace(0.0, seconds, count + 1)


def held(record: RunRecord, edges: FloatArray) -> list[Band]:
    """Return the GPUs that tasks held; roles that take the same ones in turn are one part."""
    rows: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for each in record.placements:
        for part, gpus in each.pools:
            rows.setdefault((each.task, part), []).append((each.from_s, each.to_s - each.from_s, gpus))
    return _in_order(record, (Band(*key, _means(edges, own)) for key, own in rows.items()))


def used(record: RunRecord, edges: FloatArray) -> list[Band]:
    """Return the GPUs that were at work. The run must have kept its stages.

    Rollouts are known at every look of the run; between two looks they are spread evenly.
    """
    rows: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for each in record.stages:
        if each.seconds > 0.0:
            row = (each.begun_s, each.seconds, each.busy_gpu_s / each.seconds)
            rows.setdefault((each.task, each.role), []).append(row)
    found = [Band(*key, _means(edges, own)) for key, own in rows.items()]
    for task in dict.fromkeys(seen.task for seen in record.rollouts):
        own = [(seen.at_s, seen.busy_gpu_s) for seen in record.rollouts if seen.task == task]
        at, total = np.array([(0.0, 0.0), *own]).T
        work = np.maximum(np.diff(np.interp(edges, at, total)), 0.0)
        found.append(Band(task, "rollout", work / np.diff(edges)))
    return _in_order(record, found)


def _means(edges: FloatArray, rows: list[tuple[float, float, float]]) -> FloatArray:
    """Return the mean of what rows (begun s, seconds, GPUs) add up to in each bin."""
    begun, seconds, gpus = np.array(rows, dtype=np.float64).T
    until = np.array([float(np.clip(edge - begun, 0.0, seconds) @ gpus) for edge in edges])
    mean: FloatArray = np.diff(until) / np.diff(edges)
    return mean


def _in_order(record: RunRecord, bands: Iterable[Band]) -> list[Band]:
    """Sort tasks by arrival, and the parts of each by name."""
    came = {task: number for number, task in enumerate(record.arrived_s)}
    return sorted(bands, key=lambda band: (came.get(band.task, len(came)), band.task, band.part))

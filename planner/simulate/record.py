"""What a run leaves behind: steps, stages, changes, and the GPU-seconds that add up."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

__all__ = ["Change", "Held", "Record", "RolloutSeen", "StageDone", "StepDone"]


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
class Held:
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
class Record:
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
    placements: list[Held] = field(default_factory=list)
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

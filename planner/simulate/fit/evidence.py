"""The evidence in recordings that a world can be fitted to, and the findings of a fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from libra_plan.models.quantities import rounded

__all__ = [
    "LEAST_STEPS",
    "ROLLOUTS",
    "TRAINERS",
    "DecodeSeen",
    "FitFindings",
    "FittedFigure",
    "Recorded",
    "ReplicaSizes",
    "StageSeen",
    "TaskSeen",
    "TrajectorySeen",
    "median_with_bounds",
    "six_digits",
]

LEAST_STEPS = 8
"""Steps or windows below which nothing is fitted: as `profile drift` asks for."""
ROLLOUTS = ("rollout", "generator")
TRAINERS = ("train", "actor", "trainer")
"""What frameworks call the roles that roll out and train."""
ReplicaSizes = tuple[int, ...]
"""GPUs of each replica of a role."""


@dataclass(frozen=True, slots=True)
class StageSeen:
    """A role's stage of one step: seconds at work; tokens of the step over all replicas, None: not told.

    `step` from 0, the middle one where `steps` were counted together, of which this is the mean. `placed`
    None: not told. `wakes`: how often a role woke up within the seconds.
    """

    step: float
    seconds: float
    tokens: float | None
    placed: ReplicaSizes | None
    steps: float = 1.0
    wakes: int = 0


@dataclass(frozen=True, slots=True)
class DecodeSeen:
    """A stretch of decoding on one replica: sequences at once, mean context, tokens written, seconds at work.

    `prompts` are the trajectories that ended meanwhile, None: not told.
    """

    tp: int
    sequences: float
    context_tokens: float
    tokens: float
    seconds: float
    prompts: float | None


class TrajectorySeen(msgspec.Struct, frozen=True):
    """One trajectory, as a line of a recording tells it; seconds are those of each tool call."""

    response_tokens: int
    prompt_tokens: int | None = None
    step: int | None = None
    turns: int | None = None
    tool_s: tuple[float, ...] | None = None
    task: str | None = None


@dataclass
class TaskSeen:
    """Observations of one task. `responses`: step and mean length; `wholes`: mean prompt plus response."""

    stages: dict[str, list[StageSeen]] = field(default_factory=dict)
    decode: list[DecodeSeen] = field(default_factory=list)
    responses: list[tuple[float, float]] = field(default_factory=list)
    wholes: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    trajectories: list[TrajectorySeen] = field(default_factory=list)
    source: str = ""

    def add_step(
        self,
        role: str,
        step: float,
        seconds: float,
        tokens: float | None,
        samples: float | None,
        placed: ReplicaSizes | None,
        steps: float = 1.0,
    ) -> None:
        """Note a stage of a step, with what its tokens and samples tell of lengths; seconds are above 0."""
        self.stages.setdefault(role, []).append(StageSeen(step, seconds, tokens, placed, steps))
        if tokens is None or not samples:
            return
        if role in ROLLOUTS:
            self.responses.append((step, tokens / samples))
            self.samples.append(samples)
        elif role in TRAINERS:
            self.wholes.append(tokens / samples)

    def join(self, other: TaskSeen) -> None:
        """Add observations of the same task from elsewhere."""
        for role, rows in other.stages.items():
            self.stages.setdefault(role, []).extend(rows)
        self.decode += other.decode
        self.responses += other.responses
        self.wholes += other.wholes
        self.samples += other.samples
        self.trajectories += other.trajectories
        self.source = self.source or other.source


@dataclass
class Recorded:
    """All that was read. `used`: what each path was taken for; `left_out`: lines that could not be used.

    `gpu_hours` were watched for failures, of which `repairs_s` has the length of each that ended.
    `whole_starts` are of simulated moves, which do not tell parts: task, whether it saved first, seconds.
    `errors` are ln(realised ÷ predicted) of roles' times.
    """

    tasks: dict[str, TaskSeen] = field(default_factory=dict)
    used: list[tuple[str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpu_hours: float = 0.0
    failures: int = 0
    repairs_s: list[float] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    whole_starts: list[tuple[str, bool, float]] = field(default_factory=list)
    saves_s: list[tuple[str, float]] = field(default_factory=list)
    loads_s: list[tuple[str, float]] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def task(self, name: str) -> TaskSeen:
        """Return the observations of a task."""
        return self.tasks.setdefault(name, TaskSeen())


@dataclass(frozen=True, slots=True)
class FittedFigure:
    """A figure of a world that was fitted. `low` to `high` hold it with 90 %; None: no interval is known.

    `samples` counts what it was taken from, which `of` names.
    """

    key: str
    value: float
    unit: str
    low: float | None
    high: float | None
    samples: int
    of: str
    how: str

    def text(self) -> str:
        """Return the figure as one sentence."""
        span = "" if self.low is None else f" ({self.low:.4g} to {self.high:.4g})"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.key} {self.value:.4g}{unit}{span} from {self.samples:,} {self.of}: {self.how}"


@dataclass
class FitFindings:
    """The findings of a fit: figures, assumptions with their reasons, doubts, and the share of profiles."""

    figures: list[FittedFigure] = field(default_factory=list)
    assumed: list[tuple[str, str]] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    profiled: list[str] = field(default_factory=list)

    def add(
        self,
        key: str,
        value: float,
        samples: int,
        of: str,
        how: str,
        *,
        unit: str = "",
        span: tuple[float | None, float | None] = (None, None),
    ) -> None:
        """Note a figure that was fitted."""
        self.figures.append(FittedFigure(key, value, unit, *span, samples, of, how))

    def keep(self, key: str, why: str) -> None:
        """Note that a figure stays that of the base world."""
        self.assumed.append((key, why))

    def enough(self, key: str, count: int, least: int, what: str) -> bool:
        """Whether there is enough evidence; where there is not, note that the figure stays the base's."""
        if count < least:
            self.keep(key, f"{count} {what}, {least} are the least")
        return count >= least


def median_with_bounds(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and its 90 % interval, by the order statistics that n/2 ± 0.82·√n count to."""
    ranked = np.sort(np.asarray(values, dtype=float))
    reach = 0.8225 * math.sqrt(len(ranked))
    low = max(0, math.floor(len(ranked) / 2.0 - reach))
    high = min(len(ranked) - 1, math.ceil(len(ranked) / 2.0 + reach) - 1)
    return float(np.median(ranked)), float(ranked[low]), float(ranked[high])


def six_digits(value: float) -> float:
    """Round to six digits: more would be noise in a file that people read."""
    return rounded(value, 6)

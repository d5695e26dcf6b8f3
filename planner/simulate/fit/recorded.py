"""What recordings hold that a world can be fitted to, whoever wrote them."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["DecodeSeen", "Placed", "Recorded", "StageSeen", "TaskSeen", "TrajectorySeen"]

Placed = tuple[int, ...]
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
    placed: Placed | None
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


@dataclass(frozen=True, slots=True)
class TrajectorySeen:
    """One trajectory: lengths in tokens, turns, seconds of each tool call; None: not told."""

    response_tokens: int
    prompt_tokens: int | None = None
    step: int | None = None
    turns: int | None = None
    tool_s: tuple[float, ...] | None = None


@dataclass
class TaskSeen:
    """What was seen of one task. `responses`: step and mean length; `wholes`: mean prompt plus response."""

    stages: dict[str, list[StageSeen]] = field(default_factory=dict)
    decode: list[DecodeSeen] = field(default_factory=list)
    responses: list[tuple[float, float]] = field(default_factory=list)
    wholes: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    trajectories: list[TrajectorySeen] = field(default_factory=list)
    source: str = ""


@dataclass
class Recorded:
    """All that was read. `used`: what each path was taken for; `left_out`: lines that could not be used.

    `gpu_hours` were watched for failures, of which `repairs_s` has the length of each that ended.
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
    """Of simulated moves, which do not tell parts: task, whether it saved first, seconds."""
    saves_s: list[tuple[str, float]] = field(default_factory=list)
    loads_s: list[tuple[str, float]] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    """ln(realised ÷ predicted) of roles' times."""

    def task(self, name: str) -> TaskSeen:
        """Give what was seen of a task."""
        return self.tasks.setdefault(name, TaskSeen())

"""What a look decides, and why, as a value that can be recorded and derived again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from libra_plan.planner.plan import Plan
from libra_plan.planner.telemetry.observations import BatchStep, Event

__all__ = ["Considered", "Decision", "Move", "Rung"]


class Rung(str, Enum):
    """The ladder, cheapest first. Models move between tasks and roles only, never for a batch."""

    KEEP = "keep"
    BATCHES = "step-batches"
    ELASTIC = "shift-elastic"
    ROLES = "re-plan-roles"
    TASKS = "move-tasks"


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of one task: `start`, `pause`, `grow`, `shrink`, `move` or `shift`.

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
    """A kind of change that was weighed: its net gain at the lower end, and what became of it."""

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

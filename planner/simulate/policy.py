"""What a policy sees and gives: the one protocol behind which all of them are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from libra_plan.models.topology import Cluster
from libra_plan.planner.problem import IncumbentTask
from libra_plan.planner.simulate.noisy_cost_model import Believed
from libra_plan.planner.simulate.world import World

__all__ = ["Policy", "TaskView", "View"]


@dataclass(frozen=True)
class TaskView:
    """What can be known of a task: it is here, what its steps were like, what its stages took last.

    `means`: mean response of each step done, tokens. `seen_s`:
    last seconds of each role's stage where they set the pace or were measured. `queue`: share of a step's
    trajectories that wait for a slot. `busy`: share of the GPU-seconds of each role since the last look that
    were used; missing where not held.
    """

    id: str
    steps_done: int
    steps_since_placed: int
    means: tuple[float, ...]
    seen_s: Mapping[str, float]
    queue: float | None
    busy: Mapping[str, float]


@dataclass(frozen=True)
class View:
    """The moment a policy decides in. `true` holds true prices: only a clairvoyant may look at them.

    `cluster` is what works now, `broken` what tasks held that stopped because a GPU of theirs failed;
    `urgent`: something happened.
    """

    now_s: float
    world: World
    cluster: Cluster
    tasks: tuple[TaskView, ...]
    running: tuple[IncumbentTask, ...]
    broken: tuple[IncumbentTask, ...]
    believed: Believed
    true: Believed
    urgent: bool


class Policy(Protocol):
    """Decide who holds which GPUs from now on; None: as it is. Tasks that are left out wait."""

    @property
    def name(self) -> str:
        """Give the name it is compared under."""

    @property
    def moves_free(self) -> bool:
        """Tell whether its moves take no time."""

    @property
    def elastic(self) -> bool:
        """Tell whether its changes may leave replicas running."""

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Give the placements wanted."""

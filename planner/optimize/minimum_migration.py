"""The second pass: among plans as good as the best, the one that moves least."""

from __future__ import annotations

import math
from collections.abc import Sequence

from libra_plan.planner.optimize.constraints import At
from libra_plan.planner.optimize.objective import TaskCandidates

__all__ = ["move_values"]

_STEPS = 10_000  # moved state is counted in this many parts of all that could be moved


def move_values(tasks: Sequence[TaskCandidates]) -> dict[At, float]:
    """Value candidates by the state they leave in place; then, between equals, the first ones.

    Pausing a running task counts as moving all it could ever move.
    """
    moved = {
        (t, c): entry.moved_mib if each.running else 0.0
        for t, each in enumerate(tasks)
        for c, entry in enumerate(each.candidates)
    }
    most = max(moved.values(), default=0.0) or 1.0
    tie = 1.0 / (1 + max((len(each.candidates) for each in tasks), default=0) * max(1, len(tasks)))
    pause = float(_STEPS + 1)
    return {
        at: pause * _running(tasks, at[0]) - math.ceil(_STEPS * mib / most) - tie * at[1]
        for at, mib in moved.items()
    }


def _running(tasks: Sequence[TaskCandidates], t: int) -> int:
    """Count the running tasks that go on when one does, several of them jointly."""
    return sum(tasks[member].running for member in tasks[t].members or (t,))

"""`priority`: strict tiers; no tier below ever changes what one above has.

Tiers are planned one after the other, each for the largest sum, with the configurations of the tiers above
fixed. A tier is planned from its own tasks and those above alone (fair shares are those within a
tier), so removing a lower tier cannot change it. Only the GPUs a fixed configuration lies on may still
change, so that the others find room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libra_plan.planner.optimize.policies.throughput import Throughput
from libra_plan.planner.problem import Problem

__all__ = ["Priority"]


@dataclass(frozen=True, slots=True)
class Priority(Throughput):
    """Maximise the sum of the first tier, then that of the next beside it, and so on."""

    def parts(self, problem: Problem) -> Sequence[frozenset[str]]:
        """Plan tier by tier, from 0 on."""
        tiers = sorted({task.tier for task in problem.tasks})
        return tuple(frozenset(task.id for task in problem.tasks if task.tier == tier) for tier in tiers)

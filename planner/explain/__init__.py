"""Why the plan is as it is, what would better it, and what must give way where there is none."""

from libra_plan.planner.explain.infeasible import CannotRun, Way, cannot_run, runs_alone
from libra_plan.planner.explain.relax import Relaxation, relaxed
from libra_plan.planner.explain.tasks import (
    Alternative,
    Explanation,
    OneMoreGpu,
    TaskExplanation,
    explain,
)

__all__ = [
    "Alternative",
    "CannotRun",
    "Explanation",
    "OneMoreGpu",
    "Relaxation",
    "TaskExplanation",
    "Way",
    "cannot_run",
    "explain",
    "relaxed",
    "runs_alone",
]

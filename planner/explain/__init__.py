"""Why the plan is as it is, what would improve it, and which limits must change where there is none."""

from libra_plan.planner.explain.explain import Explanation, explain_no_plan, explain_plan
from libra_plan.planner.explain.infeasible import CannotRun, Way, cannot_run, runs_alone
from libra_plan.planner.explain.margins import LimitGain, NextBest, OneMoreGpu
from libra_plan.planner.explain.relax import Relaxation, relaxed
from libra_plan.planner.explain.tasks import Alternative, TaskExplanation

__all__ = [
    "Alternative",
    "CannotRun",
    "Explanation",
    "LimitGain",
    "NextBest",
    "OneMoreGpu",
    "Relaxation",
    "TaskExplanation",
    "Way",
    "cannot_run",
    "explain_no_plan",
    "explain_plan",
    "relaxed",
    "runs_alone",
]

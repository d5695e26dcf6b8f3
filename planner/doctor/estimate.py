"""What a new plan would bring, where profiles are at hand: an estimate in place of a bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from libra_plan.models.quantities import Estimate
from libra_plan.planner.doctor.diagnose import Diagnosis
from libra_plan.planner.doctor.finding import Finding, Gain
from libra_plan.planner.optimize.incumbent import held_configurations
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Problem

__all__ = ["PLANNED", "StepChange", "step_changes", "with_estimates"]

PLANNED = ("rollout-slow", "training-slow", "gpus-idle", "backlog")
"""Findings that another plan can do something about."""
_SAME = 1e-6


@dataclass(frozen=True, slots=True)
class StepChange:
    """A task's step as it runs and as a new plan has it, both predicted from the same profiles."""

    now_s: Estimate
    then_s: Estimate

    @property
    def factor(self) -> float:
        """How many times the throughput of now the new plan has."""
        return self.now_s.value / self.then_s.value


def step_changes(problem: Problem, plan: Plan) -> dict[str, StepChange]:
    """Compare each task that runs, and may stay as it is, with the plan; others cannot be compared."""
    planned = {running.task: running.configuration.step_time_s for running in plan.running}
    found = {}
    for held in problem.running:
        task = problem.task_of.get(held.task)
        configurations = [] if task is None else held_configurations(problem, task, held)
        if configurations and held.task in planned:
            found[held.task] = StepChange(configurations[0].step_time_s, planned[held.task])
    return found


def with_estimates(diagnosis: Diagnosis, changes: Mapping[str, StepChange]) -> Diagnosis:
    """Put estimates in the place of bounds, which stay in the text and the figures."""
    return replace(diagnosis, findings=tuple(_estimated(each, changes) for each in diagnosis.findings))


def _estimated(finding: Finding, changes: Mapping[str, StepChange]) -> Finding:
    change = changes.get(finding.task or "")
    if change is None or finding.code not in PLANNED:
        return finding
    now, then = change.now_s, change.then_s
    said = (
        f"× {change.factor:.2f} by a new plan: a step of {_seconds(then)} instead of {_seconds(now)}, both "
        "predicted (an estimate)"
        if abs(change.factor - 1) > _SAME
        else f"no plan on these GPUs is better: a step of {_seconds(now)} is predicted (an estimate)"
    )
    bound = {} if finding.gain.factor is None else {"gain_bound_factor": finding.gain.factor}
    return replace(
        finding,
        gain=Gain("estimate", change.factor, f"{said}; {finding.gain.text}"),
        figures=finding.figures | bound,
    )


def _seconds(step: Estimate) -> str:
    return f"{step.value:.3g} s ({step.low:.3g} – {step.high:.3g})"

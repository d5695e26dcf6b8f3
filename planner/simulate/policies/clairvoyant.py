"""The clairvoyant: true costs, the lengths to come, and moves that cost nothing but the end of a step."""

from __future__ import annotations

from dataclasses import dataclass

from libra_plan.models.quantities import Estimate
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import IncumbentTask
from libra_plan.planner.simulate.placing import PARAMS
from libra_plan.planner.simulate.policies.known import exact, names
from libra_plan.planner.simulate.policy import TaskView, View

__all__ = ["Clairvoyant"]


@dataclass
class Clairvoyant:
    """Solve at every look for the middle of the time to the next ones, and move for `least_gain` or more."""

    name: str = "clairvoyant"
    moves_free: bool = True
    elastic: bool = True
    least_gain: float = 0.01

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Solve the true problem; keep what runs where that is nearly as good."""
        means = {task.id: _to_come(view, task) for task in view.tasks}
        problem = view.true.problem(view.cluster, means, names(view), view.running)
        plan = solve_problem(problem, PARAMS).plan
        if plan is None:
            return None
        running = dict(plan.certificate.baselines).get("running", 0.0)
        if not view.urgent and plan.certificate.objective < running * (1.0 + self.least_gain):
            return None
        return held_by(plan)


def _to_come(view: View, task: TaskView) -> Estimate:
    """Give the true mean length half a dozen looks ahead, at the pace so far."""
    spec = view.world.task_of[task.id]
    here = max(1.0, view.now_s - spec.arrives_s)
    pace = task.steps_done / here
    return exact(spec.responses.mean_at(task.steps_done + pace * 3.0 * view.world.look_s))

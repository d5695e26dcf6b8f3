"""Schedulers of other jobs, on the same configurations: Sia's objective with its restart factor, Gavel's max-min."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from libra_plan.planner.controller.choose import AllowedChanges, choose, place_choice
from libra_plan.planner.controller.configuration_values import Floats, TaskValues, configuration_values
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import IncumbentTask, Policy
from libra_plan.planner.simulate.placing import PARAMS
from libra_plan.planner.simulate.policies.known import names, recent
from libra_plan.planner.simulate.policy import View

__all__ = ["GavelLike", "SiaLike"]

_POWER, _LEFT_OUT, _GAP = -0.5, 1.1, 1e-4
_ROUND_S = 360.0


@dataclass
class SiaLike:
    """Maximise Σ weight·(1.1 − goodput^−0.5) at every look; goodput: rate against the task's fair share.

    Configurations other than the running one are worth r = (T − N·S)/(T + S) of their goodput, with the age T
    of the task, its N restarts so far and the cost S of one (Sia, SOSP'23; no threshold, no horizon).
    """

    name: str = "sia-like"
    moves_free: bool = False
    elastic: bool = True
    _restarts: dict[str, int] = field(default_factory=dict)

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Choose anew."""
        held = (*view.running, *view.broken)
        market = configuration_values(view.believed.problem(view.cluster, recent(view), names(view), held))
        values = [self._values(view, task) for task in market.tasks]
        found = choose(market, values, AllowedChanges(), _GAP, None)
        plan = place_choice(market, found.chosen, found.prices, {})
        if plan is None:
            return None
        for running in plan.running:
            self._restarts[running.task] = self._restarts.get(running.task, 0) + running.moved
        return held_by(plan)

    def _values(self, view: View, task: TaskValues) -> Floats:
        weight = task.priced.task.weight
        age = max(view.world.look_s, view.now_s - view.world.task_of[task.id].arrives_s)
        switch = task.priced.task.restart_s
        factor = np.full(
            len(task.worth), max(0.01, (age - self._restarts.get(task.id, 0) * switch) / (age + switch))
        )
        factor[len(task.worth) - task.held :] = 1.0
        goodput = np.maximum(task.worth / weight * factor, 1e-3)
        values: Floats = weight * np.maximum(_LEFT_OUT - goodput**_POWER + 1.0 / 1e-3**0.5, 1e-6)
        return values


@dataclass
class GavelLike:
    """Raise the worst-off task first, lexicographically, in rounds of six minutes, as if moves were free.

    Gavel slices time; here a round's choice is the configuration that a max-min plan gives.
    """

    name: str = "gavel-like"
    moves_free: bool = False
    elastic: bool = True
    _next_s: float = 0.0

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Solve at the end of a round, or when tasks or GPUs come or go."""
        if not view.urgent and view.now_s < self._next_s:
            return None
        self._next_s = view.now_s + _ROUND_S
        problem = view.believed.problem(view.cluster, recent(view), names(view), view.running)
        tasks = tuple(replace(task, restart_s=0.0) for task in problem.tasks)
        plan = solve_problem(replace(problem, tasks=tasks, policy=Policy.MAX_MIN), PARAMS).plan
        return None if plan is None else held_by(plan)

"""Libra's rule, as its authors and its released configuration describe it (arXiv 2606.03077).

One job on its own GPUs: minimise max(rollout, training) over the split, look every so many steps with fresh
statistics, apply when one step's predicted gain exceeds the cost of the change and 5 % of the step. No
horizon, no forecast. Several tasks each get GPUs in proportion to their weight: the rule knows one job.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from libra_plan.models.topology import GpuId
from libra_plan.planner.optimize.objective import priced_tasks
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import IncumbentTask
from libra_plan.planner.simulate.noisy_cost_model import world_cluster
from libra_plan.planner.simulate.placing import PARAMS, part_of, shares, split
from libra_plan.planner.simulate.policies.known import names, recent, same_tasks
from libra_plan.planner.simulate.policy import TaskView, View

__all__ = ["LibraRule"]

_EVERY_STEPS = 10
_LEAST_GAIN = 0.05
_COST_S = 15.0
"""Interval, least gain and cost of a change as the released defaults have them."""


@dataclass
class LibraRule:
    """Look at each task every ten steps; change it when one step pays for the change."""

    name: str = "libra"
    moves_free: bool = False
    elastic: bool = True
    _parts: dict[str, frozenset[GpuId]] = field(default_factory=dict)
    _placed: dict[str, tuple[IncumbentTask, ...]] = field(default_factory=dict)
    _works: dict[str, frozenset[GpuId]] = field(default_factory=dict)
    _looked: dict[str, int] = field(default_factory=dict)

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Plan each task in its part where it is due."""
        if not same_tasks(self._parts, view):
            weights = {name: view.world.task_of[name].weight for name in names(view)}
            whole = world_cluster(view.world)
            self._parts, self._works = split(whole, shares(whole, weights)), {}
        for task in view.tasks:
            works = self._parts[task.id] & frozenset(view.cluster.gpus)
            if self._works.get(task.id) != works:
                self._works[task.id], self._looked[task.id] = works, task.steps_done
                self._placed[task.id] = _best(view, task, works)
            elif task.steps_done - self._looked[task.id] >= _EVERY_STEPS:
                self._looked[task.id] = task.steps_done
                self._placed[task.id] = self._weighed(view, task, works)
        return tuple(held for name in names(view) for held in self._placed[name])

    def _weighed(self, view: View, task: TaskView, works: frozenset[GpuId]) -> tuple[IncumbentTask, ...]:
        """Keep what runs unless one step gains more than the change costs."""
        now = self._placed[task.id]
        part = part_of(view.cluster, works)
        if not now or not part.nodes:
            return now
        problem = view.believed.problem(part, recent(view), [task.id], now)
        kept = priced_tasks(problem, problem)[0].held
        plan = solve_problem(view.believed.problem(part, recent(view), [task.id]), PARAMS).plan
        if plan is None or not kept:
            return now
        before = min(entry.configuration.step_time_s.value for entry in kept)
        gain = before - plan.running[0].configuration.step_time_s.value
        return held_by(plan) if gain > _COST_S and gain >= _LEAST_GAIN * before else now


def _best(view: View, task: TaskView, works: frozenset[GpuId]) -> tuple[IncumbentTask, ...]:
    part = part_of(view.cluster, works)
    if not part.nodes:
        return ()
    plan = solve_problem(view.believed.problem(part, recent(view), [task.id]), PARAMS).plan
    return () if plan is None else held_by(plan)

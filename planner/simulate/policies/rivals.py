"""Rules that others use: thresholds of utilization, queues, Libra's split, Sia's and Gavel's objectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.controller.choose import AllowedChanges, choose, place_choice
from libra_plan.planner.controller.configuration_values import Floats, TaskValues, configuration_values
from libra_plan.planner.optimize.objective import priced_tasks
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import IncumbentTask, Policy, Problem, Role
from libra_plan.planner.simulate.policies.static import Placed, SplitPolicy
from libra_plan.planner.simulate.policy import (
    PARAMS,
    TaskView,
    View,
    best_in,
    first_lengths,
    part_of,
    recent_lengths,
    shares,
    split,
)
from libra_plan.planner.simulate.world import world_cluster

__all__ = ["GavelLike", "GreedyByQueue", "LibraRule", "RuleBased", "SiaLike"]

_BUSY, _IDLE = 0.9, 0.6
_LOOKS_IN_A_ROW = 3
"""Looks in a row at which a threshold must be passed before a unit is moved."""
_EVERY_STEPS, _LEAST_GAIN, _CHANGE_S = 10, 0.05, 15.0
"""Libra's interval, least gain and cost of a change, as its released defaults have them."""
_LEFT_OUT, _GAP = 1.1, 1e-4
_ROUND_S = 360.0


@dataclass
class RuleBased(SplitPolicy):
    """Scales roles by thresholds: a role over 90 % busy takes GPUs of a role of its task under 60 %.

    Every task has an equal part of the cluster. Within it the busier role gets one replica more, after three
    looks in a row. Only tasks whose roles have GPUs of their own can be scaled so.
    """

    name: str = "rule-based"
    _least: dict[tuple[str, str], int] = field(default_factory=dict)
    _looks: dict[str, int] = field(default_factory=dict)

    def _cut(self, view: View) -> dict[str, frozenset[GpuId]]:
        self._least = {}
        return super()._cut(view)

    def _revised(self, view: View, task: TaskView, works: Iterable[GpuId], placed: Placed) -> Placed:
        if not self._asks(task.id, task.busy):
            return placed
        self._looks[task.id] = 0
        wanted = max(task.busy, key=lambda role: task.busy[role])
        for held in placed:
            for role in held.roles:
                more = max(map(len, role.replicas)) if role.role == wanted else 0
                self._least[task.id, role.role] = sum(map(len, role.replicas)) + more if more else 1
        return self._planned(view, task, works) or placed

    def _asks(self, task: str, busy: Mapping[str, float]) -> bool:
        asks = len(busy) > 1 and max(busy.values()) > _BUSY and min(busy.values()) < _IDLE
        self._looks[task] = self._looks.get(task, 0) + 1 if asks else 0
        return self._looks[task] >= _LOOKS_IN_A_ROW

    def _priced(self, view: View, name: str, part: Cluster) -> Problem:
        problem = super()._priced(view, name, part)
        (task,) = problem.tasks

        def bounded(role: Role) -> Role:
            return replace(role, min_gpus=max(role.min_gpus, self._least.get((name, role.id), 1)))

        return replace(problem, tasks=(replace(task, roles=tuple(map(bounded, task.roles))),))


@dataclass
class LibraRule(SplitPolicy):
    """Libra's rule, as its authors and its released configuration describe it (arXiv 2606.03077).

    One job on its own GPUs: minimise max(rollout, training) over the split, look every ten steps with fresh
    statistics, apply when one step's predicted gain exceeds the cost of the change and 5 % of the step. No
    horizon, no forecast. Several tasks each get GPUs by weight, since the rule knows one job.
    """

    name: str = "libra"
    weighted: bool = True
    _looked: dict[str, int] = field(default_factory=dict)

    def _planned(self, view: View, task: TaskView, works: Iterable[GpuId]) -> Placed:
        self._looked[task.id] = task.steps_done
        return super()._planned(view, task, works)

    def _revised(self, view: View, task: TaskView, works: Iterable[GpuId], placed: Placed) -> Placed:
        """Keep what runs unless one step gains more than the change costs."""
        part = part_of(view.cluster, works)
        if task.steps_done - self._looked[task.id] < _EVERY_STEPS:
            return placed
        self._looked[task.id] = task.steps_done
        if not placed or not part.nodes:
            return placed
        problem = view.estimated.problem(part, recent_lengths(view), [task.id], placed)
        kept = priced_tasks(problem, problem)[0].held
        plan = solve_problem(self._priced(view, task.id, part), PARAMS).plan
        if plan is None or not kept:
            return placed
        before = min(entry.configuration.step_time_s.value for entry in kept)
        gain = before - plan.running[0].configuration.step_time_s.value
        return held_by(plan) if gain > _CHANGE_S and gain >= _LEAST_GAIN * before else placed

    def _priced(self, view: View, name: str, part: Cluster) -> Problem:
        return view.estimated.problem(part, recent_lengths(view), [name])


@dataclass
class GreedyByQueue:
    """Moves a node, look after look, from the task with the shortest queue to that with the longest.

    The queue is the share of a step's trajectories that wait for a slot, averaged over looks. Tasks begin
    with equal parts; a node changes hands when queues differ by half a step or more.
    """

    name: str = "greedy-queue"
    moves_free: bool = False
    elastic: bool = True
    _gpus: dict[str, int] = field(default_factory=dict)
    _queue: dict[str, float] = field(default_factory=dict)
    _for: tuple[frozenset[GpuId], tuple[tuple[str, int], ...]] | None = None
    _placed: Placed = ()

    def decide(self, view: View) -> Placed | None:
        """Average queues, move a node between tasks, and plan each task in its part."""
        whole = world_cluster(view.world)
        unit = min(view.world.site.gpus_per_node, max(1, len(whole.gpus) // (2 * len(view.tasks))))
        if set(self._gpus) != set(view.names):
            self._gpus = shares(whole, dict.fromkeys(view.names, 1.0))
            self._queue = dict.fromkeys(view.names, 0.0)
        for task in view.tasks:
            self._queue[task.id] += 0.3 * ((task.queue or 0.0) - self._queue[task.id])
        longest = max(self._queue, key=lambda name: self._queue[name])
        giving = [name for name in self._gpus if self._gpus[name] > unit and name != longest]
        shortest = min(giving, key=lambda name: self._queue[name], default=longest)
        if self._queue[longest] - self._queue[shortest] >= 0.5:
            self._gpus[longest] += unit
            self._gpus[shortest] -= unit
            self._queue = dict.fromkeys(self._queue, 0.0)
        now = (frozenset(view.cluster.gpus), tuple(sorted(self._gpus.items())))
        if now != self._for:
            self._for, parts, means = now, split(whole, self._gpus), first_lengths(view)
            found: list[IncumbentTask] = []
            for name in view.names:
                found += best_in(
                    lambda part, name=name: view.estimated.problem(part, means, [name]),  # type: ignore[misc]
                    view.cluster,
                    parts[name] & now[0],
                )
            self._placed = tuple(found)
        return self._placed


@dataclass
class SiaLike:
    """Maximises Σ weight·(1.1 − goodput^−0.5) at every look; goodput: rate against the task's fair share.

    Configurations other than the running one are worth r = (T − N·S)/(T + S) of their goodput, with the age T
    of the task, its N restarts so far and the cost S of one (Sia, SOSP'23; no threshold, no horizon).
    """

    name: str = "sia-like"
    moves_free: bool = False
    elastic: bool = True
    _restarts: dict[str, int] = field(default_factory=dict)

    def decide(self, view: View) -> Placed | None:
        """Choose configurations again."""
        held = (*view.running, *view.broken)
        market = configuration_values(
            view.estimated.problem(view.cluster, recent_lengths(view), view.names, held)
        )
        values = [self._values(view, task) for task in market.tasks]
        found = choose(market, values, AllowedChanges(), _GAP, None)
        plan = place_choice(market, found.chosen, found.prices, {})
        if plan is None:
            return None
        for running in plan.running:
            self._restarts[running.task] = self._restarts.get(running.task, 0) + running.moved
        return held_by(plan)

    def _values(self, view: View, task: TaskValues) -> Floats:
        weight, switch = task.priced.task.weight, task.priced.task.restart_s
        age = max(view.world.look_s, view.now_s - view.world.task_of[task.id].arrives_s)
        restarted = max(0.01, (age - self._restarts.get(task.id, 0) * switch) / (age + switch))
        factor = np.full(len(task.values), restarted)
        factor[len(task.values) - task.held :] = 1.0
        goodput = np.maximum(task.values / weight * factor, 1e-3)
        values: Floats = weight * np.maximum(_LEFT_OUT - 1.0 / np.sqrt(goodput) + 1.0 / 1e-3**0.5, 1e-6)
        return values


@dataclass
class GavelLike:
    """Raises the worst-off task first, lexicographically, in rounds of six minutes, as if moves were free.

    Gavel slices time; here a round's choice is the configuration that a max-min plan gives.
    """

    name: str = "gavel-like"
    moves_free: bool = False
    elastic: bool = True
    _next_s: float = 0.0

    def decide(self, view: View) -> Placed | None:
        """Solve at the end of a round, or when tasks or GPUs come or go."""
        if not view.urgent and view.now_s < self._next_s:
            return None
        self._next_s = view.now_s + _ROUND_S
        problem = view.estimated.problem(view.cluster, recent_lengths(view), view.names, view.running)
        tasks = tuple(replace(task, restart_s=0.0) for task in problem.tasks)
        plan = solve_problem(replace(problem, tasks=tasks, policy=Policy.MAX_MIN), PARAMS).plan
        return None if plan is None else held_by(plan)

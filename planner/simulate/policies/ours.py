"""Ours: the re-plan loop of `planner/controller`, as it runs in production, on what the simulation shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from libra_plan.planner.controller.configuration_values import ValueCache
from libra_plan.planner.controller.hysteresis import ElasticTask, ReplanPolicy
from libra_plan.planner.controller.reconcile import reconcile
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import IncumbentTask, Problem
from libra_plan.planner.simulate.noisy_cost_model import elastic_switch_s
from libra_plan.planner.simulate.placing import PARAMS
from libra_plan.planner.simulate.policies.known import by_forecast, names, recent
from libra_plan.planner.simulate.policies.limits import without_mixes, without_sharing
from libra_plan.planner.simulate.policy import View
from libra_plan.planner.telemetry.observations import (
    CheckpointAge,
    Moment,
    Observations,
    ObservedTime,
    RoleLoad,
    TaskProgress,
)

__all__ = ["Ours", "Settings", "without"]

_LIMITS = {"mixed": without_mixes, "sharing": without_sharing}
_BEGAN_S = 1_800_000_000.0  # any wall clock will do


@dataclass(frozen=True)
class Settings:
    """The loop's policy and which of its parts are at work; `limits` leave forms out of its problems."""

    name: str = "ours"
    rules: ReplanPolicy = field(default_factory=ReplanPolicy)
    forecast: bool = True
    elastic: bool = True
    limits: Callable[[Problem], Problem] = lambda problem: problem


def without(part: str) -> Settings:
    """Leave a part out.

    `horizon`: a move must pay within a look; `forecast`: lengths stay as seen; `hysteresis`: no looks in a
    row, no threshold, no doubt, no least stay; `elastic`: every change stops the task; `mixed`: replicas of a
    rollout are of one size; `sharing`: no pool for two roles or tasks.
    """
    rules, name = ReplanPolicy(), f"ours-no-{part}"
    if part == "forecast":
        return Settings(name, rules, forecast=False)
    if part == "elastic":
        return Settings(name, rules, elastic=False)
    if part in _LIMITS:
        return Settings(name, rules, limits=_LIMITS[part])
    if part == "horizon":
        stay = msgspec.structs.replace(rules.stay, prior_s=300.0, least_s=300.0, most_s=300.0)
        return Settings(name, msgspec.structs.replace(rules, stay=stay))
    if part == "hysteresis":
        rule = msgspec.structs.replace(rules.rule, gain_up=0.0, gain_down=0.0, looks_up=1, looks_down=1)
        trust = msgspec.structs.replace(rules.trust, confidence=0.0)
        stay = msgspec.structs.replace(rules.stay, task_s=0.0, role_s=0.0)
        return Settings(name, msgspec.structs.replace(rules, rule=rule, trust=trust, stay=stay))
    raise ValueError(f"the loop has no part {part}")


@dataclass
class Ours:
    """Look, believe, charge, ripen (docs/design/005-replan.md)."""

    settings: Settings = field(default_factory=Settings)
    moves_free: bool = False
    _state: LoopState = field(default_factory=LoopState)
    _memo: ValueCache = field(default_factory=ValueCache)
    _horizon_s: float | None = None

    @property
    def name(self) -> str:
        """Name it by what it lacks."""
        return self.settings.name

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Take one look; what it adopts is what is wanted."""
        rules = self._rules(view)
        horizon_s = rules.stay.prior_s if self._horizon_s is None else self._horizon_s
        today = self._problem(view, horizon_s, ahead_s=None)
        problem = self._problem(view, horizon_s, ahead_s=horizon_s / 2.0) if self.settings.forecast else today
        if not (view.running or view.broken):
            plan = solve_problem(problem, PARAMS).plan  # the first plan, before there is anything to look at
            return None if plan is None else held_by(plan)
        now = Moment(_BEGAN_S + view.now_s, view.now_s, "boot")
        inputs = LoopInputs(problem, rules, now, _window(view, now), today=today)
        looked = reconcile(inputs, self._state, self._memo)
        self._horizon_s = looked.problem.horizon_s
        plan = looked.decision.plan
        self._state = looked.kept if plan is None else looked.adopted
        return None if plan is None else held_by(plan)

    @property
    def elastic(self) -> bool:
        """Tell whether its changes may leave replicas running."""
        return self.settings.elastic

    def _rules(self, view: View) -> ReplanPolicy:
        """Name the tasks whose replicas may change roles, with what that costs."""
        rules, tasks = self.settings.rules, {}
        for task in view.tasks:
            elastic = view.world.task_of[task.id].elastic
            if elastic is not None and self.elastic:
                to_rollout_s, to_training_s = elastic_switch_s(elastic)
                tasks[task.id] = ElasticTask(
                    training="train",
                    rollout="rollout",
                    to_rollout_s=to_rollout_s,
                    to_training_s=to_training_s,
                    join_s=elastic.to_training_s,
                )
        return msgspec.structs.replace(rules, elastic=msgspec.structs.replace(rules.elastic, tasks=tasks))

    def _problem(self, view: View, horizon_s: float, ahead_s: float | None) -> Problem:
        means = recent(view) if ahead_s is None else by_forecast(view, ahead_s)
        held = (*view.running, *view.broken)
        priced = view.believed.problem(view.cluster, means, names(view), held, horizon_s)
        return self.settings.limits(priced)


def _window(view: View, now: Moment) -> Observations:
    """Tell what was seen: stage times that set the pace, queues, progress; checkpoints are one step old."""
    seen = tuple(
        ObservedTime(task.id, role, s) for task in view.tasks for role, s in sorted(task.seen_s.items())
    )
    loads = tuple(RoleLoad(task.id, "rollout", task.queue) for task in view.tasks if task.queue is not None)
    runs = {held.task for held in view.running}
    tasks = [task for task in view.tasks if task.id in runs]
    return Observations(
        now.wall_s,
        seen,
        loads=loads,
        progress=tuple(TaskProgress(task.id, float(task.steps_since_placed)) for task in tasks),
        checkpoints=tuple(CheckpointAge(task.id, 60.0) for task in tasks),
    )

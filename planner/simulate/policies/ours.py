"""Our policy: the re-plan loop of `planner/controller`, fed with records of the simulated run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from libra_plan.planner.controller.configuration_values import ValueCache
from libra_plan.planner.controller.hysteresis import ElasticTask, ReplanPolicy
from libra_plan.planner.controller.reconcile import reconcile
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import Arrangement, IncumbentTask, Problem, Role, Task
from libra_plan.planner.simulate.policy import PARAMS, View, forecast_at, recent_lengths
from libra_plan.planner.telemetry.observations import CheckpointAge, Moment
from libra_plan.planner.telemetry.observe import PRESSURE, observe
from libra_plan.planner.telemetry.work_windows import WorkWindow

__all__ = ["LoopVariant", "Ours", "loop_without", "records_of", "without_mixes", "without_sharing"]

_BEGAN_S = 1_800_000_000.0  # any date
_CHECKPOINT_S = 60.0  # checkpoints are about one step old


def without_mixes(problem: Problem) -> Problem:
    """Remove rollout options whose replicas differ in size."""

    def alike(role: Role) -> Role:
        return replace(role, options=tuple(option for option in role.options if not option.mix))

    tasks = (replace(task, roles=tuple(map(alike, task.roles))) for task in problem.tasks)
    return replace(problem, tasks=tuple(tasks))


def without_sharing(problem: Problem) -> Problem:
    """Return every role GPUs of its own, where the task allows it, and no pool to two tasks."""

    def apart(task: Task) -> Task:
        if len(task.gpu_roles) < 2 or Arrangement.SEPARATE not in task.arrangements:
            return task
        return replace(task, arrangements=frozenset({Arrangement.SEPARATE}))

    return replace(problem, tasks=tuple(map(apart, problem.tasks)), sharing=())


_LIMITS = {"mixed": without_mixes, "sharing": without_sharing}


@dataclass(frozen=True)
class LoopVariant:
    """The loop's policy and which of its parts are at work; `limits` leave forms out of its problems."""

    name: str = "ours"
    rules: ReplanPolicy = field(default_factory=ReplanPolicy)
    forecast: bool = True
    elastic: bool = True
    limits: Callable[[Problem], Problem] = lambda problem: problem


def loop_without(part: str) -> LoopVariant:
    """Return the loop without one of its parts.

    `horizon`: a move must pay within a look; `forecast`: lengths stay as seen; `hysteresis`: no looks in a
    row, no threshold, no doubt, no least stay; `elastic`: every change stops the task; `mixed`: replicas of a
    rollout are of one size; `sharing`: no pool for two roles or tasks.
    """
    rules, name = ReplanPolicy(), f"ours-no-{part}"
    if part == "forecast":
        return LoopVariant(name, rules, forecast=False)
    if part == "elastic":
        return LoopVariant(name, rules, elastic=False)
    if part in _LIMITS:
        return LoopVariant(name, rules, limits=_LIMITS[part])
    if part == "horizon":
        stay = msgspec.structs.replace(rules.stay, prior_s=300.0, least_s=300.0, most_s=300.0)
        return LoopVariant(name, msgspec.structs.replace(rules, stay=stay))
    if part == "hysteresis":
        rule = msgspec.structs.replace(rules.rule, gain_up=0.0, gain_down=0.0, looks_up=1, looks_down=1)
        trust = msgspec.structs.replace(rules.trust, confidence=0.0)
        stay = msgspec.structs.replace(rules.stay, task_s=0.0, role_s=0.0)
        return LoopVariant(name, msgspec.structs.replace(rules, rule=rule, trust=trust, stay=stay))
    raise ValueError(f"the loop has no part {part}")


@dataclass
class Ours:
    """Runs one look of the loop for every decision (docs/design/005-replan.md)."""

    variant: LoopVariant = field(default_factory=LoopVariant)
    moves_free: bool = False
    _state: LoopState = field(default_factory=LoopState)
    _memo: ValueCache = field(default_factory=ValueCache)
    _horizon_s: float | None = None

    @property
    def name(self) -> str:
        """The name of the variant."""
        return self.variant.name

    @property
    def elastic(self) -> bool:
        """Whether its changes may leave replicas running."""
        return self.variant.elastic

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Run one look, and return the placements that it adopts."""
        rules = self._rules(view)
        horizon_s = rules.stay.prior_s if self._horizon_s is None else self._horizon_s
        today = self._problem(view, horizon_s, ahead_s=None)
        problem = self._problem(view, horizon_s, ahead_s=horizon_s / 2.0) if self.variant.forecast else today
        if not (view.running or view.broken):
            plan = solve_problem(problem, PARAMS).plan  # the first plan, before there is anything to look at
            return None if plan is None else held_by(plan)
        now = Moment(_BEGAN_S + view.now_s, view.now_s, "boot")
        checkpoints = [CheckpointAge(held.task, _CHECKPOINT_S) for held in view.running]
        seen = observe(records_of(view), today, now.wall_s, checkpoints=checkpoints)
        looked = reconcile(LoopInputs(problem, rules, now, seen, today=today), self._state, self._memo)
        self._horizon_s = looked.problem.horizon_s
        plan = looked.decision.plan
        self._state = looked.kept if plan is None else looked.adopted
        return None if plan is None else held_by(plan)

    def _rules(self, view: View) -> ReplanPolicy:
        """Name the tasks whose replicas may change roles, with what that costs."""
        rules, tasks = self.variant.rules, {}
        for name in view.names:
            elastic = view.world.task_of[name].elastic
            if elastic is not None and self.elastic:
                tasks[name] = ElasticTask(
                    training="train",
                    rollout="rollout",
                    to_rollout_s=elastic.to_rollout_s,
                    to_training_s=elastic.snapshot_s + elastic.to_training_s,
                    join_s=elastic.to_training_s,
                )
        return msgspec.structs.replace(rules, elastic=msgspec.structs.replace(rules.elastic, tasks=tasks))

    def _problem(self, view: View, horizon_s: float, ahead_s: float | None) -> Problem:
        means = recent_lengths(view) if ahead_s is None else forecast_at(view, ahead_s)
        held = (*view.running, *view.broken)
        priced = view.estimated.problem(view.cluster, means, view.names, held, horizon_s)
        return self.variant.limits(priced)


def records_of(view: View) -> Iterator[WorkWindow]:
    """Make what counters of the running roles would have written: one record a role since it was placed.

    A role whose stage is not known to set the pace writes that it has done no step.
    """
    tasks = {task.id: task for task in view.tasks}
    for held in view.running:
        task = tasks.get(held.task)
        if task is None:
            continue
        for role in held.roles:
            step_s = task.seen_s.get(role.role)
            steps = 0 if step_s is None else max(1, task.steps_since_placed)
            waits = role.role == "rollout" and task.queue is not None
            yield WorkWindow(
                start_s=view.now_s - steps * (step_s or 0.0),
                end_s=view.now_s,
                utc_s=_BEGAN_S + view.now_s,
                task=task.id,
                role=role.role,
                clock="host",
                steps=float(steps),
                queues={PRESSURE: task.queue or 0.0} if waits else {},
            )

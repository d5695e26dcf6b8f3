"""What a look may not touch: tasks that must stay as they are for now, and configurations that are not safe."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from libra_plan.planner.controller.configuration_values import Market, TaskMarket
from libra_plan.planner.controller.estimators import option_of
from libra_plan.planner.controller.policy import ReplanPolicy, SafetyPolicy
from libra_plan.planner.controller.state import LoopState, TaskClock
from libra_plan.planner.plan import Configuration
from libra_plan.planner.problem import Problem, Role, Task
from libra_plan.planner.telemetry.observations import EventKind, Observations, RoleLoad

__all__ = ["Held", "held_back", "imbalanced", "not_safe", "trains", "unsafe_configurations", "with_oom"]

_TRAINING = frozenset({"actor_train", "critic_train", "reward_train"})
_IMBALANCE = 3.0  # the busiest GPU against the mean of the others
_OOM_ROOM = 0.98  # a form planned with almost as much memory would run out of it as well


@dataclass(frozen=True, slots=True)
class Held:
    """Why a task stays as it is: a code, a sentence, and what would have to be done first."""

    code: str
    why: str
    order: str | None = None


def trains(task: Task) -> bool:
    """Tell whether a task has state that a stop without a checkpoint would lose."""
    return any(role.kind in _TRAINING for role in task.roles)


def held_back(
    task: Task, clock: TaskClock, loop_s: float, window: Observations | None, policy: ReplanPolicy
) -> Held | None:
    """Say why a running task may not be moved now; None when it may."""
    stays = policy.stay.task_s
    if clock.placed_s is not None and loop_s - clock.placed_s < stays:
        return Held(
            "stay", f"{task.id} was placed {loop_s - clock.placed_s:.0f} s ago, it stays {stays:.0f} s"
        )
    if not clock.progressed and policy.safety.least_steps:
        return Held(
            "progress", f"{task.id} has not done {policy.safety.least_steps} steps since it was placed"
        )
    return not_safe(task, window, policy.safety)


def not_safe(task: Task, window: Observations | None, safety: SafetyPolicy) -> Held | None:
    """Say why stopping a task would lose work: its checkpoint is missing, stale or not known (A033)."""
    if not trains(task):
        return None
    order = f"checkpoint:{task.id}"
    known = {} if window is None else {each.task: each.age_s for each in window.checkpoints}
    if task.id not in known:
        return Held("checkpoint", f"whether {task.id} has a checkpoint is not known", order)
    age_s = known[task.id]
    if age_s is None:
        return Held("checkpoint", f"{task.id} trains and has no checkpoint", order)
    if not age_s >= -safety.clock_tolerance_s:  # dated after now, or no number: its age is not known
        return Held("checkpoint", f"{task.id}'s checkpoint is dated {-age_s:.0f} s after now", order)
    if age_s > safety.checkpoint_max_age_s:
        most = safety.checkpoint_max_age_s
        return Held("checkpoint", f"{task.id}'s checkpoint is {age_s:.0f} s old, allowed {most:.0f} s", order)
    return None


def imbalanced(load: RoleLoad) -> bool:
    """Tell a role that one GPU works for: more GPUs would rest as well (A038)."""
    if len(load.gpus_busy) < 2:
        return False
    *others, most = sorted(load.gpus_busy)
    return most > 0.5 and most > _IMBALANCE * max(statistics.fmean(others), 0.05)


def unsafe_configurations(
    market: Market, window: Observations | None, rigid: frozenset[str]
) -> tuple[dict[int, frozenset[int]], tuple[str, ...]]:
    """Ban configurations per task: growth of an imbalanced role, another number of ranks where it cannot load.

    A task whose checkpoint loads on as many ranks only (A034) keeps the GPUs of its training roles.
    """
    banned: dict[int, frozenset[int]] = {}
    notes = []
    lopsided = {load.task: load.role for load in (window.loads if window else ()) if imbalanced(load)}
    for t, task in enumerate(market.tasks):
        found: set[int] = set()
        if task.id in lopsided:
            found |= {c for c in range(len(task.worth)) if task.gpus[c] > task.held_gpus}
            notes.append(f"{task.id}/{lopsided[task.id]} is imbalanced: one GPU works, so none are added")
        if task.id in rigid and task.held_gpus:
            found |= _other_ranks(market.problem, task)
        if found:
            banned[t] = frozenset(found)
    return banned, tuple(notes)


def _other_ranks(problem: Problem, task: TaskMarket) -> set[int]:
    held = next(each for each in problem.running if each.task == task.id)
    ranks = {role.role: sum(map(len, role.replicas)) for role in held.roles}
    training = [role.id for role in task.priced.task.gpu_roles if role.kind in _TRAINING]
    moved = len(task.worth) - task.held
    return {
        c
        for c in range(moved)
        if any(_gpus(task.configuration(c), role) != ranks.get(role) for role in training)
    }


def _gpus(configuration: Configuration, role: str) -> int:
    return next(
        choice.option.gpus
        for phase in configuration.phases
        for pool in phase.pools
        for choice in pool.choices
        if choice.role == role
    )


def with_oom(
    problem: Problem, state: LoopState, window: Observations | None, policy: ReplanPolicy
) -> tuple[Problem, dict[str, TaskClock]]:
    """Drop the forms that memory ran out in, and those planned with as much, for a time.

    Gives the problem and the clocks that changed. A form that is dropped cannot be kept either, so its
    task is placed anew at once.
    """
    loop_s = state.clock.loop_s
    told = {e.task for e in (window.events if window else ()) if e.kind is EventKind.OUT_OF_MEMORY and e.task}
    clocks = {name: _ran_out(problem, name, state.clock_for(name), loop_s) for name in sorted(told)}
    limits: dict[str, Mapping[str, float]] = {}
    for task in problem.tasks:
        clock = clocks.get(task.id, state.clock_for(task.id))
        if clock.oom_s is not None and loop_s - clock.oom_s < policy.safety.oom_hold_s:
            limits[task.id] = dict(clock.oom_mib)
    if not limits:
        return problem, clocks
    tasks = tuple(_smaller(task, limits.get(task.id, {})) for task in problem.tasks)
    return replace(problem, tasks=tasks), clocks


def _ran_out(problem: Problem, name: str, clock: TaskClock, loop_s: float) -> TaskClock:
    task = problem.task_of.get(name)
    held = next((each for each in problem.running if each.task == name), None)
    if task is None or held is None:
        return clock
    roles = {role.id: role for role in task.gpu_roles}
    mib = dict(clock.oom_mib)
    for each in held.roles:
        option = option_of(roles[each.role], each, None) if each.role in roles else None
        if option is not None:
            mib[each.role] = min(mib.get(each.role, float("inf")), option.peak_mib)
    return replace(clock, oom_s=loop_s, oom_mib=tuple(sorted(mib.items())))


def _smaller(task: Task, limits: Mapping[str, float]) -> Task:
    """Leave the role that needs most memory only forms that need clearly less than ran out."""
    if not limits:
        return task
    worst = max(limits, key=lambda role: limits[role])
    return replace(task, roles=tuple(_below(r, limits[worst]) if r.id == worst else r for r in task.roles))


def _below(role: Role, mib: float) -> Role:
    return replace(role, options=tuple(o for o in role.options if o.peak_mib < _OOM_ROOM * mib))

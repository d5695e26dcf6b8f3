"""Find what a look must not change: tasks that must stay for now, and unsafe configurations."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from libra_plan.models.pricing.stages import TRAINING
from libra_plan.planner.controller.configuration_values import ConfigurationValues, TaskValues
from libra_plan.planner.controller.estimators import running_options
from libra_plan.planner.controller.hysteresis import (
    IDLE_SHARE,
    IMBALANCE_LEAST_BUSY,
    IMBALANCE_RATIO,
    OOM_SHARE,
    ReplanPolicy,
    SafetyPolicy,
)
from libra_plan.planner.controller.state import LoopState, TaskClock
from libra_plan.planner.problem import Problem, Role, Task
from libra_plan.planner.telemetry.observations import EventKind, Observations, RoleLoad

__all__ = [
    "HoldReason",
    "is_imbalanced",
    "reason_to_hold",
    "unsafe_configurations",
    "unsafe_to_stop",
    "without_oom_forms",
]


@dataclass(frozen=True, slots=True)
class HoldReason:
    """Why a task stays as it is: a code, a sentence, and what must be done first."""

    code: str
    why: str
    order: str | None = None


def reason_to_hold(
    task: Task, clock: TaskClock, loop_s: float, observed: Observations | None, policy: ReplanPolicy
) -> HoldReason | None:
    """Return why a running task may not be moved now; None when it may."""
    stays_s = policy.stay.task_s
    if clock.placed_s is not None and loop_s - clock.placed_s < stays_s:
        ago_s = loop_s - clock.placed_s
        return HoldReason("stay", f"{task.id} was placed {ago_s:.0f} s ago, it stays {stays_s:.0f} s")
    if not clock.progressed and policy.safety.least_steps:
        steps = policy.safety.least_steps
        return HoldReason("progress", f"{task.id} has not done {steps} steps since it was placed")
    return unsafe_to_stop(task, observed, policy.safety)


def unsafe_to_stop(task: Task, observed: Observations | None, safety: SafetyPolicy) -> HoldReason | None:
    """Return why stopping a task would lose work: its checkpoint is missing, stale or not known (A033)."""
    if not any(role.kind in TRAINING for role in task.roles):
        return None
    known = {} if observed is None else {each.task: each.age_s for each in observed.checkpoints}
    age_s, most_s = known.get(task.id), safety.checkpoint_max_age_s
    if task.id not in known:
        why = f"whether {task.id} has a checkpoint is not known"
    elif age_s is None:
        why = f"{task.id} trains and has no checkpoint"
    elif not age_s >= -safety.clock_tolerance_s:  # dated after now, or no number: its age is not known
        why = f"{task.id}'s checkpoint is dated {-age_s:.0f} s after now"
    elif age_s > most_s:
        why = f"{task.id}'s checkpoint is {age_s:.0f} s old, allowed {most_s:.0f} s"
    else:
        return None
    return HoldReason("checkpoint", why, f"checkpoint:{task.id}")


def is_imbalanced(load: RoleLoad) -> bool:
    """Whether one GPU does the work of the whole role, so that added GPUs would idle, too (A038)."""
    if len(load.gpus_busy) < 2:
        return False
    *others, most = sorted(load.gpus_busy)
    mean = max(statistics.fmean(others), IDLE_SHARE)
    return most > IMBALANCE_LEAST_BUSY and most > IMBALANCE_RATIO * mean


def unsafe_configurations(
    table: ConfigurationValues, observed: Observations | None, rigid: frozenset[str]
) -> tuple[dict[int, frozenset[int]], tuple[str, ...]]:
    """Return configurations that are banned per task, and notes that say why.

    A task with an imbalanced role gets no more GPUs. A `rigid` task, whose checkpoint loads on as many
    ranks only (A034), keeps the number of GPUs of its training roles.
    """
    banned: dict[int, frozenset[int]] = {}
    notes = []
    loads = () if observed is None else observed.loads
    imbalanced = {load.task: load.role for load in loads if is_imbalanced(load)}
    for t, task in enumerate(table.tasks):
        found: set[int] = set()
        if task.id in imbalanced:
            found |= {c for c in range(len(task.values)) if task.gpus[c] > task.held_gpus}
            notes.append(f"{task.id}/{imbalanced[task.id]} is imbalanced: one GPU works, so none are added")
        if task.id in rigid and task.held_gpus:
            found |= _with_other_ranks(table.problem, task)
        if found:
            banned[t] = frozenset(found)
    return banned, tuple(notes)


def _with_other_ranks(problem: Problem, task: TaskValues) -> set[int]:
    """Return the configurations that change the number of ranks of a training role."""
    held = next(each for each in problem.running if each.task == task.id)
    ranks = {role.role: sum(map(len, role.replicas)) for role in held.roles}
    training = {role.id for role in task.priced.task.gpu_roles if role.kind in TRAINING}
    return {
        c
        for c in range(task.moved)
        for choice in task.choices(c)[1]
        if choice.role in training and choice.option.gpus != ranks.get(choice.role)
    }


def without_oom_forms(
    problem: Problem, state: LoopState, observed: Observations | None, policy: ReplanPolicy
) -> tuple[Problem, tuple[TaskClock, ...]]:
    """Remove, for a time, the forms that ran out of memory, and those planned with as much memory.

    Returns the problem and the clocks of the tasks. A form that is left out cannot be kept either, so
    its task is placed anew at once.
    """
    loop_s = state.clock.loop_s
    events = () if observed is None else observed.events
    ran_out = {event.task for event in events if event.kind is EventKind.OUT_OF_MEMORY}
    clocks = tuple(_noted(problem, each, loop_s) if each.task in ran_out else each for each in state.clocks)
    limits: dict[str, Mapping[str, float]] = {
        clock.task: dict(clock.oom_mib)
        for clock in clocks
        if clock.oom_s is not None and clock.oom_mib and loop_s - clock.oom_s < policy.safety.oom_hold_s
    }
    if limits:
        tasks = tuple(_smaller(t, limits[t.id]) if t.id in limits else t for t in problem.tasks)
        problem = replace(problem, tasks=tasks)
    return problem, clocks


def _noted(problem: Problem, clock: TaskClock, loop_s: float) -> TaskClock:
    """Note the memory that the roles of a task were planned with when it ran out."""
    held = next((each for each in problem.running if each.task == clock.task), None)
    if held is None:
        return clock
    mib = dict(clock.oom_mib)
    for role, option in running_options(problem, held).items():
        mib[role] = min(mib.get(role, float("inf")), option.peak_mib)
    return replace(clock, oom_s=loop_s, oom_mib=tuple(sorted(mib.items())))


def _smaller(task: Task, limits_mib: Mapping[str, float]) -> Task:
    """Keep, for the role that needs most memory, only forms that need clearly less than what ran out."""
    worst = max(limits_mib, key=lambda role: limits_mib[role])

    def below(role: Role) -> Role:
        options = (o for o in role.options if o.peak_mib < OOM_SHARE * limits_mib[worst])
        return replace(role, options=tuple(options)) if role.id == worst else role

    return replace(task, roles=tuple(below(role) for role in task.roles))

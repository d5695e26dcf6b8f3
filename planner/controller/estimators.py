"""Estimate how far observed stage times are off the predicted ones, and correct the problem by it.

Per role, or per form of a role where forms were observed apart, ln(observed ÷ predicted) is averaged: over
all looks at first, over `smoothing_looks` of them once steady. When three of the last four residuals lie
beyond half of `change_sigmas` on one side, the world has changed and the average begins anew from them;
a single outlier moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from libra_plan.planner.controller.hysteresis import (
    CLIPPED_SIGMAS,
    PRIOR_LOOKS,
    RECENT_RESIDUALS,
    TrustPolicy,
)
from libra_plan.planner.controller.state import RateEstimate
from libra_plan.planner.problem import IncumbentRole, IncumbentTask, Problem, Role, StageOption
from libra_plan.planner.telemetry.observations import ObservedTime

__all__ = ["RateErrors", "corrected", "option_of", "rate_errors", "running_options", "updated"]

RateErrors = Mapping[tuple[str, str], Mapping[tuple[str, str], float]]
"""By (task, role) and (GPU class, form): standard error of the form's rate, relative."""


def option_of(role: Role, held: IncumbentRole, gpu_class: str | None) -> StageOption | None:
    """Return the option that a role runs in; None when it is not offered today."""
    layouts = sorted(layout for layout, _ in held.placed)
    for option in role.options:
        same = bool(option.mix) == bool(held.mix) and sorted(option.layouts) == layouts
        if same and gpu_class in (None, option.gpu_class):
            return option
    return None


def running_options(problem: Problem, held: IncumbentTask) -> dict[str, StageOption]:
    """Return the option that each role of a running task runs in, of those that are offered today."""
    task = problem.task_of.get(held.task)
    roles = {} if task is None else {role.id: role for role in task.gpu_roles}
    found = {each.role: option_of(roles[each.role], each, None) for each in held.roles if each.role in roles}
    return {role: option for role, option in found.items() if option is not None}


def updated(
    estimates: tuple[RateEstimate, ...],
    problem: Problem,
    observed: Iterable[ObservedTime],
    trust: TrustPolicy,
) -> tuple[RateEstimate, ...]:
    """Update the estimates with observed times; times of options that the problem lacks are ignored."""
    known = {(e.task, e.role, e.gpu_class, e.form): e for e in estimates}
    held = {(task.task, role.role): role for task in problem.running for role in task.roles}
    roles = {(task.id, role.id): role for task in problem.tasks for role in task.gpu_roles}
    for each in observed:
        key = (each.task, each.role)
        predicted = _predicted(problem, roles[key], held.get(key), each) if key in roles else None
        if predicted is None or not each.seconds > 0 or not math.isfinite(each.seconds):
            continue
        gpu_class, form, seconds = predicted
        name = (*key, gpu_class, form)
        # at first the models' estimate counts as much as one look
        before = known.get(name) or RateEstimate(*name, level=0.0, looks=1.0, variance=trust.noise**2)
        known[name] = _averaged(before, math.log(each.seconds / seconds), trust)
    return tuple(known[name] for name in sorted(known) if name[0] in problem.task_of)


def _predicted(
    problem: Problem, role: Role, held: IncumbentRole | None, observed: ObservedTime
) -> tuple[str, str, float] | None:
    """Return GPU class, form and predicted seconds; class and form are "" for all forms of the role."""
    if observed.form is None:
        if held is None:
            return None
        gpu = next((problem.cluster.gpus.get(gpu) for gpus in held.replicas for gpu in gpus), None)
        option = option_of(role, held, None if gpu is None else gpu.gpu_class)
        return None if option is None else ("", "", option.time_s.value)
    seconds = {
        option.gpu_class: option.time_s.value
        for option in role.options
        if option.form == observed.form and observed.gpu_class in (None, option.gpu_class)
    }
    if len(seconds) != 1:  # not offered, or the GPU class cannot be told
        return None
    gpu_class, predicted_s = next(iter(seconds.items()))
    return gpu_class, observed.form, predicted_s


def _averaged(before: RateEstimate, value: float, trust: TrustPolicy) -> RateEstimate:
    sigma = math.sqrt(before.variance)
    residual = value - before.level
    recent = (*before.recent, residual)[-RECENT_RESIDUALS:]
    middle = sorted(recent)[1:3]
    changed = len(recent) == RECENT_RESIDUALS and middle[0] * middle[1] > 0  # three of four on one side
    if changed and min(map(abs, middle)) > trust.change_sigmas * sigma / 2:
        level = before.level + sum(middle) / 2
        return replace(before, level=level, looks=float(RECENT_RESIDUALS), recent=())
    residual = max(-CLIPPED_SIGMAS * sigma, min(CLIPPED_SIGMAS * sigma, residual))
    looks = min(before.looks + 1.0, float(trust.smoothing_looks))
    unbiased = residual**2 * (looks - 1.0) / looks if looks > 1 else residual**2
    variance = before.variance + (unbiased - before.variance) / (looks + PRIOR_LOOKS)
    level = before.level + residual / looks
    return replace(before, level=level, looks=looks, variance=max(variance, 1e-12), recent=recent)


def corrected(problem: Problem, estimates: Iterable[RateEstimate]) -> Problem:
    """Scale every option, and its bounds, by the observed rate of the option or else of its role."""
    levels: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for each in estimates:
        levels.setdefault((each.task, each.role), {})[each.gpu_class, each.form] = each.level
    if not any(level for forms in levels.values() for level in forms.values()):
        return problem
    observed = {task for task, _ in levels}
    tasks = tuple(
        replace(task, roles=tuple(_scaled(role, levels.get((task.id, role.id), {})) for role in task.roles))
        if task.id in observed
        else task
        for task in problem.tasks
    )
    return replace(problem, tasks=tasks)


def _scaled(role: Role, forms: Mapping[tuple[str, str], float]) -> Role:
    if not forms or not role.on_gpu:
        return role
    common = forms.get(("", ""), 0.0)
    options = []
    for option in role.options:
        level = forms.get((option.gpu_class, option.form), common)
        scaled = replace(option, time_s=option.time_s.scaled(math.exp(level))) if level else option
        options.append(scaled)
    return replace(role, options=tuple(options))


def rate_errors(estimates: Iterable[RateEstimate]) -> RateErrors:
    """Return the standard error of each form that was observed on its own.

    Observations of a role as a whole scale all of its forms alike, so they do not affect comparisons.
    """
    found: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for each in estimates:
        if each.form:
            error = math.sqrt(each.variance / each.looks)
            found.setdefault((each.task, each.role), {})[each.gpu_class, each.form] = error
    return found

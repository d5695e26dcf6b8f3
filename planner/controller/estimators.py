"""Follow how far seen times are off predicted ones, and put the problem right by it.

Per role, or per form of a role where forms were seen apart, ln(seen ÷ predicted) is averaged: over all
looks at first, over `smoothing_looks` of them once steady. When three of the last four residuals lie
beyond half of `change_sigmas` on one side the world has changed, and the average begins anew from them;
a single outlier moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from libra_plan.planner.controller.policy import TrustPolicy
from libra_plan.planner.controller.state import Tracked
from libra_plan.planner.problem import IncumbentRole, Problem, Role, StageOption, Task
from libra_plan.planner.telemetry.observations import ObservedTime

__all__ = ["Doubts", "corrected", "doubts_of", "observe", "option_of"]

_RECENT = 4
_PRIOR_LOOKS = 5.0  # the policy's noise counts as much as so many looks
_CLIP = 5.0  # deviations a single look may count for at most

Key = tuple[str, str, str, str]
Doubts = Mapping[tuple[str, str], Mapping[tuple[str, str], float]]
"""By (task, role) and (GPU class, form): standard error of the form's rate, relative."""


def option_of(role: Role, held: IncumbentRole, gpu_class: str | None) -> StageOption | None:
    """Find the option a role runs in; None when it is not offered today."""
    layouts = sorted(layout for layout, _ in held.placed)
    for option in role.options:
        same = bool(option.mix) == bool(held.mix) and sorted(option.layouts) == layouts
        if same and gpu_class in (None, option.gpu_class):
            return option
    return None


def observe(
    tracked: tuple[Tracked, ...], problem: Problem, seen: Iterable[ObservedTime], trust: TrustPolicy
) -> tuple[Tracked, ...]:
    """Take in what was seen; observations of what the problem does not offer are left out."""
    known: dict[Key, Tracked] = {(t.task, t.role, t.gpu_class, t.form): t for t in tracked}
    predicted = _Predicted(problem)
    for each in seen:
        found = predicted.of(each)
        if found is None or not each.seconds > 0 or not math.isfinite(each.seconds):
            continue
        gpu_class, form, seconds = found
        key = (each.task, each.role, gpu_class, form)
        known[key] = _taken(known.get(key), key, math.log(each.seconds / seconds), trust)
    tasks = problem.task_of
    return tuple(known[key] for key in sorted(known) if key[0] in tasks)


class _Predicted:
    """Finds the option an observation is about."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._roles = {(task.id, role.id): role for task in problem.tasks for role in task.gpu_roles}
        self._held = {(held.task, role.role): role for held in problem.running for role in held.roles}
        self._forms: dict[tuple[str, str], dict[tuple[str, str], float]] = {}

    def of(self, seen: ObservedTime) -> tuple[str, str, float] | None:
        """Give (GPU class, form, predicted seconds); class and form "" for all forms of the role."""
        key = (seen.task, seen.role)
        role = self._roles.get(key)
        if role is None:
            return None
        if seen.form is None:
            held = self._held.get(key)
            where = None if held is None else self._class(held)
            option = None if held is None else option_of(role, held, where)
            return None if option is None else ("", "", option.time_s.value)
        if key not in self._forms:
            self._forms[key] = {(o.gpu_class, o.form): o.time_s.value for o in role.options}
        forms = self._forms[key]
        names = [name for name in forms if name[1] == seen.form and seen.gpu_class in (None, name[0])]
        return (*names[0], forms[names[0]]) if len(names) == 1 else None

    def _class(self, held: IncumbentRole) -> str | None:
        gpu = next((self._problem.cluster.gpus.get(gpu) for gpus in held.replicas for gpu in gpus), None)
        return None if gpu is None else gpu.gpu_class


def _taken(before: Tracked | None, key: Key, value: float, trust: TrustPolicy) -> Tracked:
    if before is None:  # the models' word counts as much as one look
        before = Tracked(*key, level=0.0, looks=1.0, variance=trust.noise**2)
    sigma = math.sqrt(before.variance)
    residual = value - before.level
    recent = (*before.recent, residual)[-_RECENT:]
    middle = sorted(recent)[1:3]
    changed = len(recent) == _RECENT and middle[0] * middle[1] > 0  # three of four on one side
    if changed and min(map(abs, middle)) > trust.change_sigmas * sigma / 2:
        level = before.level + sum(middle) / 2
        return replace(before, level=level, looks=float(_RECENT), recent=())
    residual = max(-_CLIP * sigma, min(_CLIP * sigma, residual))
    looks = min(before.looks + 1.0, float(trust.smoothing_looks))
    unbiased = residual**2 * (looks - 1.0) / looks if looks > 1 else residual**2
    variance = before.variance + (unbiased - before.variance) / (looks + _PRIOR_LOOKS)
    return replace(
        before,
        level=before.level + residual / looks,
        looks=looks,
        variance=max(variance, 1e-12),
        recent=recent,
    )


def corrected(problem: Problem, tracked: Iterable[Tracked]) -> Problem:
    """Scale every option by what was seen of it, or else of its role; bounds scale along."""
    levels: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for each in tracked:
        levels.setdefault((each.task, each.role), {})[each.gpu_class, each.form] = each.level
    if all(level == 0.0 for forms in levels.values() for level in forms.values()):
        return problem
    return replace(problem, tasks=tuple(_task(task, levels) for task in problem.tasks))


def _task(task: Task, levels: Mapping[tuple[str, str], Mapping[tuple[str, str], float]]) -> Task:
    roles = tuple(_role(role, levels.get((task.id, role.id))) for role in task.roles)
    return task if all(a is b for a, b in zip(roles, task.roles, strict=True)) else replace(task, roles=roles)


def _role(role: Role, forms: Mapping[tuple[str, str], float] | None) -> Role:
    if not forms or not role.on_gpu:
        return role
    common = forms.get(("", ""), 0.0)
    options = []
    for option in role.options:
        level = forms.get((option.gpu_class, option.form), common)
        options.append(option if level == 0.0 else _scaled(option, math.exp(level)))
    return replace(role, options=tuple(options))


def _scaled(option: StageOption, factor: float) -> StageOption:
    return replace(option, time_s=option.time_s.scaled(factor))


def doubts_of(tracked: Iterable[Tracked]) -> Doubts:
    """Give the standard error of each form that was seen on its own.

    What was seen of a role as a whole moves all of its forms alike, and so no comparison between them.
    """
    found: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for each in tracked:
        if each.form:
            error = math.sqrt(each.variance / each.looks)
            found.setdefault((each.task, each.role), {})[each.gpu_class, each.form] = error
    return found

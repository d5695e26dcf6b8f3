"""All configurations of all tasks as arrays: their GPUs, their values, and the errors of the values.

A configuration that changes a running task, or starts one, is charged before it is compared:

    value · (1 − switch_s ÷ horizon_s − confidence · error − least gain)

A choice with a higher value than keeping everything has therefore paid, task by task, for its switches,
for the errors of the models and for the least gain that the policy demands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.quantities import Estimate
from libra_plan.planner.controller.estimators import RateErrors
from libra_plan.planner.controller.hysteresis import ReplanPolicy
from libra_plan.planner.optimize.lp_master import Master
from libra_plan.planner.optimize.objective import PricedTask, priced_tasks
from libra_plan.planner.optimize.priced_master import master_of_priced
from libra_plan.planner.plan import Configuration, RoleChoice
from libra_plan.planner.problem import LEAST_KEPT, Policy, Problem

__all__ = [
    "ConfigurationValues",
    "TaskValues",
    "ValueCache",
    "charged",
    "configuration_values",
    "is_plain_sum",
    "prices_of",
    "relative_error",
    "value_bound",
]

Floats = NDArray[np.float64]
Z90 = 1.645  # half-widths of the models' bounds, in standard deviations


@dataclass(frozen=True)
class TaskValues:
    """The configurations of one task, the placements that it may keep last.

    `values` are weight × fair share before any charge, `demand` what each takes of the resources, `error`
    the relative standard deviation of the step time by the models. `held` counts the placements that may
    be kept, `held_gpus` the GPUs that the task has now. `broken`: it runs, and cannot stay as placed.
    """

    priced: PricedTask
    values: Floats
    demand: Floats
    gpus: Floats
    error: Floats
    held: int
    held_gpus: int
    broken: bool

    @property
    def id(self) -> str:
        """Return the task's name."""
        return self.priced.task.id

    @property
    def moved(self) -> int:
        """Return the number of configurations that move the task; they come first."""
        return len(self.values) - self.held

    @property
    def kept(self) -> int | None:
        """Return the number of the best placement that may be kept; None when there is none."""
        return self.moved + int(np.argmax(self.values[self.moved :])) if self.held else None

    def configuration(self, number: int) -> Configuration:
        """Build the configuration with this number."""
        at = number - len(self.priced.table)
        return self.priced.held[at].configuration if at >= 0 else self.priced.table.configuration(number)

    def choices(self, number: int) -> tuple[float, list[RoleChoice]]:
        """Return the step time of a configuration, seconds, and what each role runs in there."""
        if number < self.moved:
            table = self.priced.table
            pools = [option.pool for phase in table.phases_of(number) for option in phase]
            return float(table.seconds[number]), [choice for pool in pools for choice in pool.choices]
        held = self.priced.held[number - self.moved].configuration
        return held.step_time_s.value, [c for phase in held.phases for p in phase.pools for c in p.choices]


@dataclass(frozen=True)
class ConfigurationValues:
    """The configurations of all tasks, in the problem's order, and the constraints that they share."""

    problem: Problem
    master: Master
    tasks: tuple[TaskValues, ...]


@dataclass
class ValueCache:
    """The values of the last four problems; it saves time and changes no decision."""

    known: dict[str, ConfigurationValues] = field(default_factory=dict)

    def values_of(self, problem: Problem, digest: str) -> ConfigurationValues:
        """Return the values of a problem with this digest."""
        found = self.known.pop(digest, None)
        self.known[digest] = found or configuration_values(problem)
        while len(self.known) > 4:
            del self.known[next(iter(self.known))]
        return self.known[digest]


def configuration_values(problem: Problem) -> ConfigurationValues:
    """Compute the value of every configuration of every task."""
    priced = priced_tasks(problem, problem)
    master = master_of_priced(priced, problem.cluster)
    taken = {
        held.task: len({gpu for role in held.roles for gpus in role.replicas for gpu in gpus})
        for held in problem.running
    }
    tasks = []
    for t, each in enumerate(priced):
        held = len(each.held) if each.reference is not None else 0
        moved = len(each) - held
        values = each.values
        demand = master.demand(int(master.first[t]), int(master.first[t + 1]))
        values[:moved] /= each.stay  # they include the charge for the switch already
        now = taken.get(each.task.id, 0)
        gpus = np.concatenate((each.table.gpus[:moved], [now] * held)).astype(np.float64)
        broken = each.running and not held
        task = TaskValues(each, values, demand, gpus, np.zeros(len(values)), held, now, broken)
        task.error[:] = [_model_error(task, number) for number in range(len(values))]
        tasks.append(task)
    return ConfigurationValues(problem, master, tuple(tasks))


def relative_error(time: Estimate) -> float:
    """Return the relative standard deviation of a time by its bounds."""
    return (time.high - time.low) / (2.0 * Z90 * time.value)


def _model_error(task: TaskValues, number: int) -> float:
    """Return the relative error of a step time; of a configuration not built yet, its longest stage's."""
    if number >= task.moved:
        return relative_error(task.priced.held[number - task.moved].configuration.step_time_s)
    _, choices = task.choices(number)
    return relative_error(max((c.option.time_s for c in choices), key=lambda time: time.value))


def observed_errors(task: TaskValues, errors: RateErrors) -> Floats:
    """Return the standard error of each configuration after observations, weighted by share of the step."""
    found = np.zeros(len(task.values))
    roles = {role.id: errors.get((task.id, role.id), {}) for role in task.priced.task.gpu_roles}
    if not any(roles.values()):
        return found
    for number in range(len(found)):
        seconds, choices = task.choices(number)
        squares = 0.0
        for choice in choices:
            option = choice.option
            error = roles[choice.role].get((option.gpu_class, option.form), 0.0)
            squares += (error * min(1.0, option.time_s.value / seconds)) ** 2
        found[number] = squares**0.5
    return found


def charged(
    task: TaskValues, problem: Problem, policy: ReplanPolicy, errors: RateErrors, *, thresholds: bool = True
) -> tuple[Floats, Floats]:
    """Return the charged value of every configuration, and the relative error that it was charged with.

    Without `thresholds` only the switch is charged. A placement that is kept is charged nothing.
    """
    own = np.sqrt((1.0 - policy.trust.shared_error) * task.error**2 + observed_errors(task, errors) ** 2)
    kept = task.kept
    error = own if kept is None else np.sqrt(own**2 + own[kept] ** 2)
    share = np.full(len(task.values), 1.0 - task.priced.task.restart_s / problem.horizon_s)
    if thresholds and not task.broken:
        more = (task.gpus >= task.held_gpus) & (kept is not None)
        least = np.where(more, policy.rule.gain_up, policy.rule.gain_down)
        share -= policy.trust.confidence * error + least
    share = np.maximum(share, LEAST_KEPT)
    share[task.moved :] = 1.0
    error[task.moved :] = 0.0
    return task.values * share, error


def value_bound(table: ConfigurationValues, values: Sequence[Floats], prices: Floats) -> float:
    """Bound the value of every choice: the limits at these prices, and each task's best beside them."""
    return replace(table.master, value=np.concatenate(values)).bound(prices)


def prices_of(table: ConfigurationValues, known: Mapping[str, float]) -> Floats:
    """Return remembered prices in the order of the constraints; 0 for new constraints."""
    return np.array([max(0.0, known.get(name, 0.0)) for name in table.master.names])


def is_plain_sum(problem: Problem) -> bool:
    """Whether the objective is a plain sum over tasks, so that configurations can be priced one by one."""
    asked = any(task.deadline or task.min_steps_per_s or task.latency_first for task in problem.tasks)
    return problem.policy is Policy.THROUGHPUT and problem.budget_per_hour is None and not asked

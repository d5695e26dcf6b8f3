"""All configurations of all tasks as arrays: what they take, are worth, and how far that may be off.

A configuration that changes a running task, or starts one, is charged before it is compared:

    worth · (1 − switch_s ÷ horizon_s − confidence · doubt − least gain)

So whatever beats keeping everything as it is has paid, task by task, for its switch, for what the models
may be wrong by, and for the least gain that the policy asks; moves that do not are never proposed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.configurations.keeping import ConfigurationFolder
from libra_plan.planner.configurations.known import KnownConfigurations
from libra_plan.planner.controller.estimators import Doubts
from libra_plan.planner.controller.policy import ReplanPolicy
from libra_plan.planner.optimize.colgen.resources import Resources
from libra_plan.planner.optimize.objective import PricedTask, priced_tasks
from libra_plan.planner.optimize.restricted_master import market
from libra_plan.planner.plan import Configuration
from libra_plan.planner.problem import LEAST_KEPT, Policy, Problem

__all__ = ["Market", "Memo", "TaskMarket", "charged", "is_plain_sum", "market_of", "prices_of", "value_bound"]

Floats = NDArray[np.float64]
Z90 = 1.645  # half-widths of the models' bounds, in standard deviations


@dataclass(frozen=True)
class TaskMarket:
    """One task: `worth` (weight × fair share, uncharged), demands and GPUs of its configurations, held last.

    `error`: relative standard deviation of the step time as the models have it, `held` how many of the
    configurations are placements it may keep, `held_gpus` the GPUs it holds now (0: it does not run).
    """

    priced: PricedTask
    worth: Floats
    demand: Floats
    gpus: Floats
    error: Floats
    held: int
    held_gpus: int
    broken: bool

    @property
    def id(self) -> str:
        """Name the task."""
        return self.priced.task.id

    @property
    def kept(self) -> int | None:
        """Give the number of the best placement it may keep; None when there is none."""
        if not self.held:
            return None
        first = len(self.worth) - self.held
        return first + int(np.argmax(self.worth[first:]))

    def configuration(self, number: int) -> Configuration:
        """Build a configuration."""
        at = number - len(self.priced.table)
        return self.priced.held[at].configuration if at >= 0 else self.priced.table.configuration(number)


@dataclass(frozen=True)
class Market:
    """The problem with its rows and the tasks in problem order."""

    problem: Problem
    resources: Resources
    tasks: tuple[TaskMarket, ...]


@dataclass
class Memo:
    """Remembers the markets of the last problems; it changes how long a look takes, nothing else."""

    known: dict[str, Market] = field(default_factory=dict)
    configurations: ConfigurationFolder | None = None
    """Where configurations of tasks are kept from one process to the next."""

    def keep(self, digest: str, made: Market) -> Market:
        """Remember a market, and forget all but the last four."""
        self.known[digest] = made
        while len(self.known) > 4:
            del self.known[next(iter(self.known))]
        return made


def market_of(problem: Problem, kept_in: ConfigurationFolder | None = None) -> Market:
    """Generate every task's configurations, but for those that are kept, and measure them."""
    priced = priced_tasks(problem, problem, known=KnownConfigurations(kept_in))
    resources, oracles = market(priced, problem.cluster)
    holds = {
        held.task: {g for r in held.roles for gpus in r.replicas for g in gpus} for held in problem.running
    }
    tasks = []
    for each, oracle in zip(priced, oracles, strict=True):
        held = len(each.held) if each.reference is not None else 0
        moved = len(oracle.values) - held
        worth = oracle.values.copy()
        worth[:moved] /= each.stay
        configurations = [entry.configuration for entry in each.held] if held else []
        taken = len(holds.get(each.task.id, ()))
        gpus = np.concatenate((each.table.gpus[:moved], [taken] * held)).astype(np.float64)
        error = np.concatenate(
            (_errors(each, moved), [_error(configuration) for configuration in configurations])
        )
        broken = each.running and not held
        tasks.append(TaskMarket(each, worth, oracle.demands, gpus, error, held, taken, broken))
    return Market(problem, resources, tuple(tasks))


def _error(configuration: Configuration) -> float:
    time = configuration.step_time_s
    return (time.high - time.low) / (2.0 * Z90 * time.value)


def _errors(priced: PricedTask, count: int) -> Floats:
    """Estimate the error of each draft from the option of each role that takes longest there."""
    found = np.zeros(count)
    for number, draft in enumerate(priced.table.drafts[:count]):
        choices = [choice for phase in draft.phases for option in phase for choice in option.pool.choices]
        longest = max(choices, key=lambda choice: choice.option.time_s.value).option.time_s
        found[number] = (longest.high - longest.low) / (2.0 * Z90 * longest.value)
    return found


def seen_errors(task: TaskMarket, doubts: Doubts) -> Floats:
    """Give what observations leave open of each configuration: its forms' errors, by their share of the step."""
    roles = {role.id: doubts.get((task.id, role.id)) for role in task.priced.task.gpu_roles}
    count = len(task.worth)
    if not any(roles.values()) or not count:
        return np.zeros(count)
    found = np.zeros(count)
    moved = count - task.held
    for number in range(count):
        if number < moved:
            draft = task.priced.table.drafts[number]
            seconds = draft.seconds
            choices = [choice for phase in draft.phases for option in phase for choice in option.pool.choices]
        else:
            configuration = task.priced.held[number - moved].configuration
            seconds = configuration.step_time_s.value
            choices = [
                choice for phase in configuration.phases for pool in phase.pools for choice in pool.choices
            ]
        total = 0.0
        for choice in choices:
            option = choice.option
            error = (roles[choice.role] or {}).get((option.gpu_class, option.form), 0.0)
            total += (error * min(1.0, option.time_s.value / seconds)) ** 2
        found[number] = total**0.5
    return found


def charged(
    task: TaskMarket, problem: Problem, policy: ReplanPolicy, doubts: Doubts, *, thresholds: bool = True
) -> tuple[Floats, Floats]:
    """Give the charged worth of every configuration, and the doubt (relative) that it was charged with.

    Without `thresholds` only the switch is charged. A placement that is kept is charged nothing.
    """
    count, moved = len(task.worth), len(task.worth) - task.held
    own = np.sqrt((1.0 - policy.trust.shared_error) * task.error**2 + seen_errors(task, doubts) ** 2)
    kept = task.kept
    doubt = own if kept is None else np.sqrt(own**2 + own[kept] ** 2)
    switch = task.priced.task.restart_s / problem.horizon_s
    share = np.full(count, 1.0 - switch)
    if thresholds and not task.broken:
        rule = policy.rule
        grows = task.gpus > task.held_gpus if kept is not None else np.zeros(count, dtype=bool)
        equal = task.gpus == task.held_gpus
        least = np.where(grows | equal, rule.gain_up, rule.gain_down)
        share -= policy.trust.confidence * doubt + least
    share = np.maximum(share, LEAST_KEPT)
    share[moved:] = 1.0
    doubt[moved:] = 0.0
    return task.worth * share, doubt


def value_bound(market: Market, values: Sequence[Floats], prices: Floats) -> float:
    """Bound the value of every choice: limits at these prices, and each task's best beside them."""
    total = float(market.resources.limit @ prices)
    for task, value in zip(market.tasks, values, strict=True):
        total += max(0.0, float((value - task.demand @ prices).max(initial=0.0)))
    return total + 1e-9 * max(1.0, abs(total))


def prices_of(market: Market, known: Mapping[str, float]) -> Floats:
    """Put remembered prices in the order of the rows; a row that is new has none."""
    return np.array([max(0.0, known.get(name, 0.0)) for name in market.resources.names])


def is_plain_sum(problem: Problem) -> bool:
    """Tell whether the sum of worths is all that counts, so that configurations can be priced one by one."""
    asked = any(task.deadline or task.min_steps_per_s or task.latency_first for task in problem.tasks)
    return problem.policy is Policy.THROUGHPUT and problem.budget_per_hour is None and not asked

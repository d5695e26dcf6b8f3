"""Choose what pays: configurations by price and proof, some tasks left as they are, then placed on GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from libra_plan.planner.controller.configuration_values import Floats, Market, TaskMarket, value_bound
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.colgen.oracle import Found
from libra_plan.planner.optimize.colgen.resources import Resources
from libra_plan.planner.optimize.colgen.search import Limits, optimise
from libra_plan.planner.optimize.colgen.table import TableOracle
from libra_plan.planner.optimize.placement import place
from libra_plan.planner.optimize.policies.budget import cost_per_hour
from libra_plan.planner.plan import Certificate, PlacedRole, Plan, QueuedTask, RunningTask, Status
from libra_plan.planner.problem import LEAST_KEPT, Problem

__all__ = ["Chosen", "Freedom", "Proposal", "certificate", "choose", "kept_choice", "plan_of"]

_NO_LIMIT_S = 1e6
_FINEST = 1e-6
_PARAMS = SolveParams(deterministic=True, time_limit_s=5.0)

Chosen = Mapping[int, int]
"""Configuration number by task number; a task that is not in it does not run."""


@dataclass(frozen=True)
class Proposal:
    """A choice, its charged value, what no choice can exceed, and the prices that prove that."""

    chosen: Chosen
    value: float
    bound: float
    prices: Floats


@dataclass(frozen=True)
class Freedom:
    """What may change: `frozen` tasks keep what they have, `banned` configurations are not for their task."""

    frozen: frozenset[int] = frozenset()
    banned: Mapping[int, frozenset[int]] = field(default_factory=dict)


def kept_choice(market: Market) -> dict[int, int]:
    """Give the choice that changes nothing: every task that can stay, as it is."""
    kept = {t: task.kept for t, task in enumerate(market.tasks)}
    return {t: number for t, number in kept.items() if number is not None}


def choose(
    market: Market, values: Sequence[Floats], freedom: Freedom, gap: float, prices: Floats | None
) -> Proposal:
    """Find the best choice within `gap` of its bound; what runs is the first answer.

    Deterministic: it ends by the gap, not by the clock.
    """
    now = kept_choice(market)
    fixed = {t: now[t] for t in freedom.frozen if t in now}
    taken = sum((market.tasks[t].demand[c] for t, c in fixed.items()), np.zeros(len(market.resources.names)))
    left = Resources(
        market.resources.names, np.maximum(market.resources.limit - taken, 0.0), market.resources.units
    )
    free = [t for t in range(len(market.tasks)) if t not in freedom.frozen]
    oracles, numbers = [], []
    for t in free:
        task, banned = market.tasks[t], freedom.banned.get(t, frozenset())
        allowed = np.array([c for c in range(len(values[t])) if c not in banned], dtype=np.int64)
        oracles.append(TableOracle(values[t][allowed], task.demand[allowed]))
        numbers.append(allowed)
    base = sum(float(values[t][c]) for t, c in fixed.items())
    if not oracles:
        return Proposal(fixed, base, base, np.zeros(len(left.names)) if prices is None else prices)
    running = _incumbent(oracles, numbers, free, now, left)
    answer = optimise(
        left,
        oracles,
        Limits(time_limit_s=_NO_LIMIT_S, gap=max(gap, _FINEST)),
        prices=prices,
        running=running,
        clock=lambda: 0.0,
    )
    chosen = dict(fixed)
    for each in answer.chosen:
        assert isinstance(each.handle, int)
        chosen[free[each.task]] = int(numbers[each.task][each.handle])
    return Proposal(chosen, base + answer.objective, base + answer.bound, answer.prices)


def _incumbent(
    oracles: Sequence[TableOracle],
    numbers: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]],
    free: Sequence[int],
    now: Mapping[int, int],
    left: Resources,
) -> list[tuple[int, Found]]:
    """Put what runs into the search's words, if it still fits."""
    found: list[tuple[int, Found]] = []
    demand = np.zeros(len(left.names))
    for at, t in enumerate(free):
        if t in now and now[t] in numbers[at]:
            number = int(np.searchsorted(numbers[at], now[t]))
            oracle = oracles[at]
            found.append((at, Found(float(oracle.values[number]), oracle.demands[number], number, 0.0)))
            demand = demand + oracle.demands[number]
    return found if found and left.fits(demand) else []


# ---------------------------------------------------------------- plans


def plan_of(market: Market, chosen: Chosen, prices: Floats, waits: Mapping[str, QueuedTask]) -> Plan | None:
    """Place a choice on GPUs and prove what it is worth; None when its blocks cannot be placed.

    `waits` are the known reasons of tasks that do not run; others wait because the rest is worth more.
    """
    problem = market.problem
    order = sorted(chosen)
    candidates = {t: market.tasks[t].priced.candidates([chosen[t]]) for t in order}
    tasks = [candidates[t] for t in order]
    choice = dict.fromkeys(range(len(order)), 0)
    placed = place(problem, tasks, choice, _PARAMS, limit_s=_NO_LIMIT_S)
    if placed is None:
        return None
    running = []
    for at in range(len(order)):
        entry, where = tasks[at].candidates[0], placed[at]
        moved = entry.held is None and _moved(problem, tasks[at].task.id, where.roles)
        running.append(
            RunningTask(
                tasks[at].task.id, entry.configuration, where.roles, where.cpu, entry.normalised, moved
            )
        )
    missing = [task for t, task in enumerate(market.tasks) if t not in chosen]
    queued = tuple(waits.get(task.id) or _outbid(task) for task in missing)
    return Plan(tuple(running), queued, certificate(market, running, prices))


def _moved(problem: Problem, task: str, roles: Sequence[PlacedRole]) -> bool:
    held = next((held for held in problem.running if held.task == task), None)
    now = {role.role: role.placed for role in roles}
    return held is not None and now != {role.role: role.placed for role in held.roles}


def _outbid(task: TaskMarket) -> QueuedTask:
    if not len(task.worth):
        said = "; ".join(line for role in task.priced.task.roles for line in role.refusals[:2])
        reason = f"{task.id}: no form of it could be priced for these GPUs" + (f" ({said})" if said else "")
        return QueuedTask(task.id, "refused", reason)
    least = int(task.gpus.min())
    return QueuedTask(
        task.id,
        "worth",
        f"{task.id}: it runs on {least} GPUs or more, and what runs is worth more there",
    )


def certificate(market: Market, running: Sequence[RunningTask], prices: Floats) -> Certificate:
    """Prove a plan: its objective, and what no plan of this problem exceeds at these prices."""
    problem = market.problem
    stays = {task.id: task.priced for task in market.tasks}
    runs = {held.task for held in problem.running}
    objective = 0.0
    for each in running:
        priced = stays[each.task]
        weight = priced.task.weight if each.task in runs else priced.urgency
        objective += weight * each.normalised * (priced.stay if each.moved else 1.0)
    plain = [_plain(task) for task in market.tasks]
    bound = max(objective, value_bound(market, plain, prices))
    gap = (bound - objective) / max(abs(objective), 1e-9)
    return Certificate(
        policy=problem.policy.value,
        status=Status.OPTIMAL if gap <= 1e-5 else Status.FEASIBLE,
        objective=objective,
        bound=bound,
        gap=gap,
        bounds=(("configurations", bound),),
        configurations=sum(len(task.worth) for task in market.tasks),
        deterministic=True,
        cost_per_hour=cost_per_hour(problem.cluster, (each.configuration for each in running)),
        budget_per_hour=problem.budget_per_hour,
    )


def _plain(task: TaskMarket) -> Floats:
    """Give every configuration's worth as the problem has it: less the switch, with no threshold."""
    share = np.full(len(task.worth), max(LEAST_KEPT, task.priced.stay))
    share[len(task.worth) - task.held :] = 1.0
    values: Floats = task.worth * share
    return values

"""Choose configurations that pay while some tasks stay as they are, place them, and compare with now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from libra_plan.planner.controller.configuration_values import (
    ConfigurationValues,
    Floats,
    TaskValues,
    value_bound,
)
from libra_plan.planner.controller.hysteresis import FINEST_GAP, PLACE_LIMIT_S, SEARCH_LIMIT_S
from libra_plan.planner.controller.state import Move
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.lp_master import duals_of
from libra_plan.planner.optimize.objective import cost_per_hour
from libra_plan.planner.optimize.placement import place
from libra_plan.planner.optimize.restricted_master import Effort, select
from libra_plan.planner.plan import (
    Certificate,
    Configuration,
    PlacedRole,
    Plan,
    QueuedTask,
    RunningTask,
    Status,
)
from libra_plan.planner.problem import LEAST_KEPT, Problem

__all__ = [
    "AllowedChanges",
    "Chosen",
    "Comparison",
    "Proposal",
    "action_of",
    "actions",
    "certificate",
    "choose",
    "compare",
    "form_of",
    "kept_choice",
    "place_choice",
]

_NO_LIMIT_S = 1e6
_PARAMS = SolveParams(deterministic=True, time_limit_s=PLACE_LIMIT_S)

Chosen = Mapping[int, int]
"""Configuration number by task number; a task that is not in it does not run."""


@dataclass(frozen=True)
class Proposal:
    """A choice, its charged value, the bound on every choice, and the prices that prove the bound."""

    chosen: Chosen
    value: float
    bound: float
    prices: Floats


@dataclass(frozen=True)
class AllowedChanges:
    """What may change: `frozen` tasks keep what they have, `banned` configurations are not for their task."""

    frozen: frozenset[int] = frozenset()
    banned: Mapping[int, frozenset[int]] = field(default_factory=dict)


def kept_choice(table: ConfigurationValues) -> dict[int, int]:
    """Return the choice that changes nothing: every task that can stay, as it is."""
    return {t: task.kept for t, task in enumerate(table.tasks) if task.kept is not None}


def choose(
    table: ConfigurationValues,
    values: Sequence[Floats],
    allowed: AllowedChanges,
    gap: float,
    prices: Floats | None,
) -> Proposal:
    """Find the best choice within `gap` of its bound, starting from what runs.

    The search ends by its gap and not by the clock, so that equal inputs give equal choices.
    """
    master, now = table.master, kept_choice(table)
    fixed = {t: now[t] for t in allowed.frozen if t in now}
    base = sum(float(values[t][c]) for t, c in fixed.items())
    offered = np.ones(len(master.value), dtype=bool)
    for t in allowed.frozen:
        offered[master.first[t] : master.first[t + 1]] = False
    for t, banned in allowed.banned.items():
        offered[master.first[t] + np.array(sorted(banned), dtype=np.int64)] = False
    numbers = np.flatnonzero(offered)
    if not len(numbers):
        return Proposal(fixed, base, base, np.zeros(len(master.names)) if prices is None else prices)
    limit = np.maximum(master.limit - master.taken(master.number(fixed)), 0.0)
    left = replace(master, value=np.concatenate(values), limit=limit).part(numbers)
    kept = master.number({t: c for t, c in now.items() if t not in fixed})
    start = np.searchsorted(numbers, kept[offered[kept]])
    effort = Effort(max(gap, FINEST_GAP), SEARCH_LIMIT_S, deterministic=True)
    found = select(left, effort, start)
    chosen = numbers[found.chosen if found.chosen is not None else start[:0]]
    return Proposal(
        {**fixed, **master.choice(chosen)},
        base + (found.value if found.chosen is not None else 0.0),
        base + found.bound,
        found.relaxation.prices,
    )


# ---------------------------------------------------------------- what a choice changes


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a choice changes, in weighted fair shares over the horizon; `net` is after all charges."""

    moves: tuple[Move, ...]
    gain: float
    net: float
    cost: float


def action_of(gpus_before: int, gpus_after: int) -> str:
    """Return the name of a change of a running task."""
    return "grow" if gpus_after > gpus_before else "shrink" if gpus_after < gpus_before else "move"


def actions(table: ConfigurationValues, chosen: Chosen) -> dict[int, str]:
    """Return the action for each task that changes."""
    now, found = kept_choice(table), {}
    for t, task in enumerate(table.tasks):
        new = chosen.get(t)
        if new is None:
            if task.held_gpus:
                found[t] = "pause"
        elif not task.held_gpus:
            found[t] = "start"
        elif new != now.get(t) and new < task.moved:
            found[t] = action_of(task.held_gpus, int(task.gpus[new]))
    return found


def compare(
    table: ConfigurationValues,
    chosen: Chosen,
    values: Sequence[Floats],
    errors: Sequence[Floats],
    confidence: float,
) -> Comparison:
    """Compare a choice with what runs: what each change brings, may be wrong by and costs."""
    now, moves, net = kept_choice(table), [], 0.0
    for t, action in actions(table, chosen).items():
        task, new, old = table.tasks[t], chosen.get(t), now.get(t)
        before = float(task.values[old]) if old is not None else 0.0
        after = float(task.values[new]) if new is not None else 0.0
        net += (float(values[t][new]) if new is not None else 0.0) - before
        switch_s = task.priced.task.restart_s if new is not None and task.held_gpus else 0.0
        moves.append(
            Move(
                task.id,
                action,
                task.held_gpus,
                0 if new is None else int(task.gpus[new]),
                after - before,
                0.0 if new is None else confidence * float(errors[t][new]) * after,
                after * min(1.0, switch_s / table.problem.horizon_s),
                switch_s,
                "" if new is None else form_of(task.configuration(new)),
            )
        )
    return Comparison(tuple(moves), sum(m.worth for m in moves), net, sum(m.cost for m in moves))


def form_of(configuration: Configuration) -> str:
    """Return the form of each role, such as `actor 2 × tp4, rollout 4 × tp1`."""
    return ", ".join(
        f"{choice.role} {choice.option.form}"
        for phase in configuration.phases
        for pool in phase.pools
        for choice in pool.choices
    )


# ---------------------------------------------------------------- plans


def place_choice(
    table: ConfigurationValues, chosen: Chosen, prices: Floats, waits: Mapping[str, QueuedTask]
) -> Plan | None:
    """Place a choice on GPUs and prove its objective; None when its blocks cannot be placed.

    `waits` are the known reasons of tasks that do not run; others wait because running tasks gain more.
    """
    order = sorted(chosen)
    tasks = [table.tasks[t].priced.candidates([chosen[t]]) for t in order]
    choice = dict.fromkeys(range(len(order)), 0)
    placed = place(table.problem, tasks, choice, _PARAMS, limit_s=_NO_LIMIT_S)
    if placed is None:
        return None
    running = []
    for at, each in enumerate(tasks):
        entry, where, name = each.candidates[0], placed[at], each.task.id
        moved = entry.held is None and _is_moved(table.problem, name, where.roles)
        running.append(
            RunningTask(name, entry.configuration, where.roles, where.cpu, entry.normalised, moved)
        )
    missing = [task for t, task in enumerate(table.tasks) if t not in chosen]
    queued = tuple(waits.get(task.id) or _outbid(task) for task in missing)
    return Plan(tuple(running), queued, certificate(table, running, prices))


def _is_moved(problem: Problem, task: str, roles: Sequence[PlacedRole]) -> bool:
    held = next((held for held in problem.running if held.task == task), None)
    now = {role.role: role.placed for role in roles}
    return held is not None and now != {role.role: role.placed for role in held.roles}


def _outbid(task: TaskValues) -> QueuedTask:
    if not len(task.values):
        said = "; ".join(line for role in task.priced.task.roles for line in role.refusals[:2])
        reason = f"{task.id}: no form of it could be priced for these GPUs" + (f" ({said})" if said else "")
        return QueuedTask(task.id, "refused", reason)
    least = int(task.gpus.min())
    reason = f"{task.id}: it runs on {least} GPUs or more, and what runs is worth more there"
    return QueuedTask(task.id, "worth", reason)


def certificate(table: ConfigurationValues, running: Sequence[RunningTask], prices: Floats) -> Certificate:
    """Return the certificate of a plan: its objective, and the bound on every plan at these prices."""
    problem = table.problem
    priced = {task.id: task.priced for task in table.tasks}
    runs = {held.task for held in problem.running}
    objective = 0.0
    for each in running:
        task = priced[each.task]
        weight = task.task.weight if each.task in runs else task.urgency
        objective += weight * each.normalised * (task.stay if each.moved else 1.0)
    bound = max(objective, value_bound(table, [_less_switch(task) for task in table.tasks], prices))
    gap = (bound - objective) / max(abs(objective), 1e-9)
    return Certificate(
        policy=problem.policy.value,
        status=Status.OPTIMAL if gap <= 1e-5 else Status.FEASIBLE,
        objective=objective,
        bound=bound,
        gap=gap,
        bounds=(("lp", bound),),
        configurations=sum(len(task.values) for task in table.tasks),
        deterministic=True,
        cost_per_hour=cost_per_hour(problem.cluster, (each.configuration for each in running)),
        budget_per_hour=problem.budget_per_hour,
        duals=tuple(sorted(duals_of(table.master, prices).items())),
    )


def _less_switch(task: TaskValues) -> Floats:
    """Return every configuration's value as the problem states it: less the switch, without a threshold."""
    share = np.full(len(task.values), max(LEAST_KEPT, task.priced.stay))
    share[task.moved :] = 1.0
    return np.asarray(task.values * share)

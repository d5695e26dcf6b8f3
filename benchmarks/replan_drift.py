"""Lengths drift from 2,500 to 11,500 tokens over 100 steps: the loop against a planner that knows the future.

An async RL task (rollout ∝ tokens^1.31, training ∝ tokens^0.39: what Libra's authors report from 1K to
32K) shares 16 GPUs with a task that does not change. The loop sees each step's mean length with 5 % noise
and plans for the middle of the expected stay, by the forecast. The other one chooses the best sequence of
plans by dynamic programming over all splits, with the same switch costs. Both are paid in weighted fair
shares.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
from replan_worlds import at, window, with_running

from libra_plan.models.length_forecast import LEAST_HISTORY, forecast_lengths
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.planner.controller.configuration_values import ValueCache, configuration_values
from libra_plan.planner.controller.hysteresis import ReplanPolicy, StayPolicy
from libra_plan.planner.controller.reconcile import reconcile
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import Arrangement, Coupling, CouplingKind, IncumbentTask, Problem
from libra_plan.planner.tables import table_cluster, table_task

GPUS, STEPS, STEP_S, LOOK_S = 16, 100, 454.0, 60.0
FIRST, LAST, NOISE = 2500.0, 11_500.0, 0.05
RESTART_S = {"rl": 111.0, "other": 60.0}
MOST_HISTORY = 40


def length_at(second: float) -> float:
    """Return the true mean length: it grows by the same factor every step."""
    return FIRST * (LAST / FIRST) ** min(1.0, second / (STEPS * STEP_S))


def problem_at(tokens: Estimate, horizon_s: float) -> Problem:
    """Price both tasks where responses are so long."""

    def stretched(power: float, value: float) -> float:
        return (value / FIRST) ** power

    train = {n: 260.0 * stretched(0.39, tokens.value) / n**0.92 for n in range(1, GPUS)}
    rollout = {n: 420.0 * stretched(1.31, tokens.value) / n**0.95 for n in range(1, GPUS)}
    rl = table_task(
        "rl",
        2.0,
        {"train": train, "rollout": rollout},
        Coupling(CouplingKind.ASYNC, staleness=1),
        arrangements=[Arrangement.SEPARATE],
        restart_s=RESTART_S["rl"],
    )
    low, high = (
        stretched(1.31, bound) / stretched(1.31, tokens.value) for bound in (tokens.low, tokens.high)
    )
    options = tuple(
        replace(
            o,
            time_s=Estimate(
                o.time_s.value, o.time_s.value * low, o.time_s.value * high, "s", Origin.EXTRAPOLATED
            ),
        )
        for o in rl.roles[1].options
    )
    rl = replace(rl, roles=(rl.roles[0], replace(rl.roles[1], options=options)))
    other = table_task(
        "other", 1.0, {"train": {n: 100.0 / n**0.8 for n in range(1, GPUS)}}, restart_s=RESTART_S["other"]
    )
    return Problem(table_cluster(GPUS), (rl, other), horizon_s=horizon_s)


def exactly(tokens: float) -> Estimate:
    return Estimate(tokens, tokens, tokens, "tokens", Origin.MEASURED)


State = tuple[int, int, int]
"""GPUs of training, rollout and the other task; 0 where a task does not run."""


def rates(second: float) -> dict[State, tuple[float, float]]:
    """Return what both tasks are worth in every split, by the problem of that moment."""
    problem = problem_at(exactly(length_at(second)), 3600.0)
    references = {task.id: task.priced.reference for task in configuration_values(problem).tasks}
    rl, other = problem.tasks
    times = [{o.gpus: o.time_s.value for o in role.options} for role in (*rl.roles, *other.roles)]
    found = {}
    for train, rollout, rest in product(range(GPUS), range(GPUS), range(GPUS)):
        if train + rollout + rest > GPUS or (train == 0) != (rollout == 0):
            continue
        first = 2.0 / max(times[0][train], times[1][rollout]) / (references["rl"] or 1.0) if train else 0.0
        second_worth = 1.0 / times[2][rest] / (references["other"] or 1.0) if rest else 0.0
        found[train, rollout, rest] = (first, second_worth)
    return found


def knows_the_future(every_s: float) -> float:
    """Choose the best sequence of splits by dynamic programming, backwards from the end."""
    moments = np.arange(0.0, STEPS * STEP_S, every_s)
    tables = [rates(float(moment)) for moment in moments]
    states = list(tables[0])
    first = np.array([state[:2] for state in states])
    rest = np.array([state[2] for state in states])
    moves_rl = (first[:, None, :] != first[None, :, :]).any(axis=2)
    moves_other = rest[:, None] != rest[None, :]
    later = np.zeros(len(states))
    for at_moment, table in reversed(list(enumerate(tables))):
        rl, other = (np.array([table[state][n] for state in states]) for n in (0, 1))
        here = (rl + other) * every_s + later
        if at_moment == 0:
            return float(here.max())
        lost = moves_rl * rl[None, :] * RESTART_S["rl"] + moves_other * other[None, :] * RESTART_S["other"]
        later = (here[None, :] - lost).max(axis=1)
    raise AssertionError("there is a first moment")


def split_of(held: tuple[IncumbentTask, ...]) -> State:
    gpus = {(task.task, role.role): sum(map(len, role.replicas)) for task in held for role in task.roles}
    return gpus.get(("rl", "train"), 0), gpus.get(("rl", "rollout"), 0), gpus.get(("other", "train"), 0)


def with_loop(policy: ReplanPolicy, seed: int = 0) -> tuple[float, int]:
    """Live through the drift with the loop; gives what was made, net of switches, and the changes."""
    rng = np.random.default_rng(seed)
    plan = solve_problem(problem_at(exactly(FIRST), 3600.0)).require_plan()
    held = held_by(plan)
    state, memo = LoopState(), ValueCache()
    history: list[float] = []
    made, changes, horizon_s = 0.0, 0, policy.stay.prior_s
    for number in range(int(STEPS * STEP_S / LOOK_S)):
        second = number * LOOK_S
        while len(history) < second // STEP_S:
            history.append(length_at(len(history) * STEP_S) * math.exp(rng.normal(0.0, NOISE)))
        problem = with_running(problem_at(_ahead(history, horizon_s), horizon_s), held)
        now = at(number, LOOK_S)
        looked = reconcile(LoopInputs(problem, policy, now, window(problem, now)), state, memo)
        before, table = split_of(held), rates(second)
        horizon_s = looked.problem.horizon_s
        adopted = looked.decision.plan
        held = held if adopted is None else held_by(adopted)
        state = looked.kept if adopted is None else looked.adopted
        after = split_of(held)
        rl, other = table[after]
        made += (rl + other) * LOOK_S
        made -= rl * RESTART_S["rl"] if before[:2] != after[:2] else 0.0
        made -= other * RESTART_S["other"] if before[2] != after[2] else 0.0
        changes += before != after
    return made, changes


def _ahead(history: list[float], horizon_s: float) -> Estimate:
    """Forecast the middle of the stay; without enough history the last length counts."""
    if len(history) < LEAST_HISTORY:
        return exactly(history[-1] if history else FIRST)
    known = history[-MOST_HISTORY:]
    steps = min(len(known), round(horizon_s / 2 / STEP_S))
    return forecast_lengths(known).at(steps)


def drift() -> tuple[str, ...]:
    """Compare, and put it into a row."""
    policy = ReplanPolicy(stay=StayPolicy())
    future = knows_the_future(STEP_S)
    still = _still()
    every = [with_loop(policy, seed) for seed in range(3)]
    parts = ", ".join(f"{made / future - 1:+.2%} ({changes} changes)" for made, changes in every)
    return (
        f"lengths 2.5k → 11.5k over {STEPS} steps of {STEP_S:g} s",
        f"loop against a planner that knows the future, 3 seeds: {parts}",
        f"the first plan kept throughout: {still / future - 1:+.2%}",
    )


def _still() -> float:
    split = split_of(held_by(solve_problem(problem_at(exactly(FIRST), 3600.0)).require_plan()))
    seconds = np.arange(0.0, STEPS * STEP_S, LOOK_S)
    return float(sum(sum(rates(float(second))[split]) * LOOK_S for second in seconds))

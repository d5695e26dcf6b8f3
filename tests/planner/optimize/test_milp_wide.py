"""The master over many candidates says what CP-SAT over all of them says, whatever rows a policy adds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_problems import random_problem

from libra_plan.planner.optimize import cpsat, milp_wide
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.baselines import fits_rows, greedy
from libra_plan.planner.optimize.constraints import (
    At,
    Choice,
    Row,
    count_row,
    master_rows,
    must_row,
    no_good_row,
    worth_row,
)
from libra_plan.planner.optimize.interrupter import Watch
from libra_plan.planner.optimize.lp_bound import wide_of
from libra_plan.planner.optimize.objective import TaskCandidates, candidates_of

EXACT = SolveParams(gap=0.0, time_limit_s=20.0)


def _master(seed: int) -> tuple[list[TaskCandidates], list[Row], dict[At, float]]:
    """Draw a problem and rows as policies write them: levels, deadlines, floors, budgets."""
    rng = np.random.default_rng(seed)
    problem = random_problem(seed)
    tasks = candidates_of(problem, problem)
    able = [t for t, each in enumerate(tasks) if each.candidates]
    values = {(t, c): entry.worth for t in able for c, entry in enumerate(tasks[t].candidates)}
    rows = master_rows(tasks, problem.cluster)
    if able and rng.random() < 0.4:
        levels = sorted(entry.normalised for t in able for entry in tasks[t].candidates)
        rows.append(count_row(tasks, float(rng.choice(levels)), int(rng.integers(1, len(able) + 1))))
    if able and rng.random() < 0.4:
        t = int(rng.choice(able))
        allowed = [c for c in range(len(tasks[t].candidates)) if rng.random() < 0.5]
        rows.append(must_row("deadline", t, allowed, "deadline"))
    if able and rng.random() < 0.4:
        rows.append(worth_row(tasks, float(rng.uniform(0.0, 2.0))))
    if able and rng.random() < 0.4:
        costs = {at: float(rng.integers(1, 1000)) for at in values}
        rows.append(Row("budget", costs, float(rng.integers(1, 1500)), "budget"))
    if able and rng.random() < 0.4:
        rows.append(no_good_row(tasks, greedy(tasks, rows)))
    if rng.random() < 0.2:
        values = {at: -value for at, value in values.items()}
    return tasks, rows, values


def _value(values: dict[At, float], choice: Choice) -> float:
    return sum(values[at] for at in choice.items())


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_it_agrees_with_the_exact_master(first: int) -> None:
    """Same optimum, same word on what has none, and a bound that no choice exceeds."""
    for seed in range(first, first + 40):
        tasks, rows, values = _master(seed)
        if not values:
            continue
        best = cpsat.maximise(tasks, rows, values, EXACT, limit_s=20.0)
        found = milp_wide.maximise(tasks, rows, values, EXACT, limit_s=20.0)
        assert (found.choice is None, found.infeasible) == (best.choice is None, best.infeasible), seed
        if best.choice is None or found.choice is None:
            continue
        assert fits_rows(rows, found.choice), seed
        assert _value(values, found.choice) == pytest.approx(_value(values, best.choice), abs=2e-5), seed
        assert found.bound >= _value(values, best.choice) - 1e-9, seed
        assert found.optimal, seed
        any_at_all = milp_wide.maximise(tasks, rows, {}, EXACT, limit_s=20.0)
        assert any_at_all.choice is not None, seed
        assert fits_rows(rows, any_at_all.choice), seed


@pytest.mark.parametrize("seed", range(20))
def test_any_prices_bound_every_choice(seed: int) -> None:
    """Prices cut short by a limit are as good as none: what they prove must hold all the same."""
    tasks, rows, values = _master(seed)
    best = cpsat.maximise(tasks, rows, values, EXACT, limit_s=20.0)
    if best.choice is None:
        return
    rng = np.random.default_rng(seed)
    scale = max(map(abs, values.values()), default=1.0)
    wide = wide_of(tasks, rows, values)
    for prices in (np.zeros(len(rows)), rng.uniform(0, scale, len(rows))):
        assert wide.bound(prices) >= _value(values, best.choice) - 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_without_time_the_hint_or_a_rounded_choice_is_the_answer(seed: int) -> None:
    """Whoever stops the search, or has let the limit pass, gets a choice that keeps the rows, and a bound."""
    tasks, rows, values = _master(seed)
    best = cpsat.maximise(tasks, rows, values, EXACT, limit_s=20.0)
    if best.choice is None or not best.choice:
        return
    watch = Watch()
    watch.stop()
    for params, limit_s in ((EXACT, 0.0), (replace(EXACT, watch=watch), 20.0)):
        found = milp_wide.maximise(tasks, rows, values, params, limit_s=limit_s, hint=best.choice)
        assert found.choice is not None
        assert fits_rows(rows, found.choice)
        assert found.bound >= _value(values, best.choice) - 1e-9
        assert _value(values, found.choice) >= _value(values, best.choice) - 1e-9


def test_whoever_looks_on_is_told_in_the_values_asked_for() -> None:
    """Inside, values are parts of the largest; a progress line must not show those."""
    problem = random_problem(1)
    tasks = candidates_of(problem, problem)
    rows = master_rows(tasks, problem.cluster)
    values = {(t, c): entry.worth for t, each in enumerate(tasks) for c, entry in enumerate(each.candidates)}
    many = {at: 1000.0 * value for at, value in values.items()}
    watch = Watch()
    found = milp_wide.maximise(tasks, rows, many, replace(EXACT, watch=watch), limit_s=20.0, reported=True)
    assert found.choice is not None
    assert watch.last is not None
    assert watch.last.objective == pytest.approx(_value(many, found.choice))
    assert watch.last.bound is not None
    assert watch.last.bound >= _value(many, found.choice) * (1 - 1e-9)

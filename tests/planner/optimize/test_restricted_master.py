"""The restricted master says what CP-SAT over all candidates says, whatever constraints a policy adds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracle import best_throughput
from random_problems import random_problem, with_running

from libra_plan.planner.optimize import backends, cpsat, restricted_master, solve_stages
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.baselines import greedy, keeps_all
from libra_plan.planner.optimize.constraints import (
    At,
    Choice,
    Constraint,
    base_constraints,
    level_floor,
    no_good,
    run_in,
    value_floor,
)
from libra_plan.planner.optimize.interrupter import Interrupter
from libra_plan.planner.optimize.lp_master import master_of
from libra_plan.planner.optimize.objective import TaskCandidates, candidates_of
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Problem
from libra_plan.planner.tables import table_cluster, table_task
from libra_plan.planner.verify import violations_of

EXACT = SolveParams(gap=0.0, time_limit_s=20.0)


def _master(seed: int) -> tuple[list[TaskCandidates], list[Constraint], dict[At, float]]:
    """Draw a problem and constraints as policies write them: levels, deadlines, floors, budgets."""
    rng = np.random.default_rng(seed)
    problem = random_problem(seed)
    tasks = candidates_of(problem, problem)
    able = [t for t, each in enumerate(tasks) if each.candidates]
    values = {(t, c): entry.value for t in able for c, entry in enumerate(tasks[t].candidates)}
    constraints = base_constraints(tasks, problem.cluster)
    if able and rng.random() < 0.4:
        levels = sorted(entry.normalised for t in able for entry in tasks[t].candidates)
        constraints.append(level_floor(tasks, float(rng.choice(levels)), int(rng.integers(1, len(able) + 1))))
    if able and rng.random() < 0.4:
        t = int(rng.choice(able))
        allowed = [c for c in range(len(tasks[t].candidates)) if rng.random() < 0.5]
        constraints.append(run_in("deadline", t, allowed, "deadline"))
    if able and rng.random() < 0.4:
        constraints.append(value_floor(tasks, float(rng.uniform(0.0, 2.0))))
    if able and rng.random() < 0.4:
        costs = {at: float(rng.integers(1, 1000)) for at in values}
        constraints.append(Constraint("budget", costs, float(rng.integers(1, 1500)), "budget"))
    if able and rng.random() < 0.4:
        constraints.append(no_good(tasks, greedy(tasks, constraints)))
    if rng.random() < 0.2:
        values = {at: -value for at, value in values.items()}
    return tasks, constraints, values


def _value(values: dict[At, float], choice: Choice) -> float:
    return sum(values[at] for at in choice.items())


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_it_agrees_with_the_exact_master(first: int) -> None:
    """Same optimum, same word on what has none, and a bound that no choice exceeds."""
    for seed in range(first, first + 40):
        tasks, constraints, values = _master(seed)
        if not values:
            continue
        best = cpsat.solve_cpsat(tasks, constraints, values, EXACT, limit_s=20.0)
        found = restricted_master.solve_restricted(tasks, constraints, values, EXACT, limit_s=20.0)
        assert (found.choice is None, found.infeasible) == (best.choice is None, best.infeasible), seed
        if best.choice is None or found.choice is None:
            continue
        assert keeps_all(constraints, found.choice), seed
        assert _value(values, found.choice) == pytest.approx(_value(values, best.choice), abs=2e-5), seed
        assert found.bound >= _value(values, best.choice) - 1e-9, seed
        assert found.optimal, seed
        any_at_all = restricted_master.solve_restricted(tasks, constraints, {}, EXACT, limit_s=20.0)
        assert any_at_all.choice is not None, seed
        assert keeps_all(constraints, any_at_all.choice), seed


@pytest.mark.parametrize("seed", range(20))
def test_any_prices_bound_every_choice(seed: int) -> None:
    """Prices cut short by a limit are as good as none: what they prove must hold all the same."""
    tasks, constraints, values = _master(seed)
    best = cpsat.solve_cpsat(tasks, constraints, values, EXACT, limit_s=20.0)
    if best.choice is None:
        return
    rng = np.random.default_rng(seed)
    scale = max(map(abs, values.values()), default=1.0)
    master = master_of(tasks, constraints, values)
    for prices in (np.zeros(len(master.limit)), rng.uniform(0, scale, len(master.limit))):
        assert master.bound(prices) >= _value(values, best.choice) - 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_without_time_the_hint_or_a_rounded_choice_is_the_answer(seed: int) -> None:
    """Whoever stops the search, or has let the limit pass, gets a choice that keeps all constraints."""
    tasks, constraints, values = _master(seed)
    best = cpsat.solve_cpsat(tasks, constraints, values, EXACT, limit_s=20.0)
    if best.choice is None or not best.choice:
        return
    watch = Interrupter()
    watch.stop()
    for params, limit_s in ((EXACT, 0.0), (replace(EXACT, interrupter=watch), 20.0)):
        found = restricted_master.solve_restricted(
            tasks, constraints, values, params, limit_s=limit_s, hint=best.choice
        )
        assert found.choice is not None
        assert keeps_all(constraints, found.choice)
        assert found.bound >= _value(values, best.choice) - 1e-9
        assert _value(values, found.choice) >= _value(values, best.choice) - 1e-9


def test_whoever_looks_on_is_told_in_the_values_asked_for() -> None:
    """Inside, values are parts of the largest; a progress line must not show those."""
    problem = random_problem(1)
    tasks = candidates_of(problem, problem)
    constraints = base_constraints(tasks, problem.cluster)
    values = {(t, c): entry.value for t, each in enumerate(tasks) for c, entry in enumerate(each.candidates)}
    many = {at: 1000.0 * value for at, value in values.items()}
    watch = Interrupter()
    found = restricted_master.solve_restricted(
        tasks, constraints, many, replace(EXACT, interrupter=watch), limit_s=20.0, reported=True
    )
    assert found.choice is not None
    assert watch.last is not None
    assert watch.last.objective == pytest.approx(_value(many, found.choice))
    assert watch.last.bound is not None
    assert watch.last.bound >= _value(many, found.choice) * (1 - 1e-9)


# ---------------------------------------------------------------- whole solves over few configurations

EACH = 10


def _check(problem: Problem, name: str) -> None:
    plan = solve_problem(problem, SolveParams(gap=1e-6, time_limit_s=20.0)).plan
    best = best_throughput(problem)
    if plan is None:
        assert best == 0.0, name
        return
    assert violations_of(problem, plan) == [], name
    assert plan.certificate.bound >= best * (1 - 1e-9), f"{name}: a better plan than the bound allows"
    assert plan.certificate.objective >= best / (1 + plan.certificate.gap) * (1 - 1e-9), name


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, EACH))
def test_the_bound_over_few_configurations_holds_for_all(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is that of all configurations; an oracle that tries every one must agree."""
    monkeypatch.setattr(backends, "MANY", 0)
    for seed in range(first, first + EACH):
        _check(random_problem(seed), f"seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(900, 930, EACH))
def test_a_running_plan_is_among_the_few(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept placements are configurations of their own, and an unchanged problem moves nothing."""
    monkeypatch.setattr(backends, "MANY", 0)
    for seed in range(first, first + EACH):
        problem = random_problem(seed)
        plan = solve_problem(problem, SolveParams(gap=1e-6, time_limit_s=20.0)).plan
        if plan is None:
            continue
        changed = with_running(problem, plan, seed)
        _check(changed, f"seed {seed}, running")


# ---------------------------------------------------------------- a running plan that is good enough

NEAR = SolveParams(gap=1e-6, time_limit_s=20.0)
WIDE = 0.05


def _without_short_cut(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> Plan | None:
    with monkeypatch.context() as patched:
        patched.setattr(solve_stages, "_restricted", lambda *args, **kwargs: None)
        return solve_problem(problem, NEAR).plan


@pytest.mark.parametrize("seed", range(40, 70))
def test_staying_is_as_good_as_a_full_solve(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has changed, the answer is worth what the full solve's is, but for the gap allowed."""
    problem = random_problem(seed)
    first = solve_problem(problem, NEAR).plan
    if first is None:
        return
    changed = with_running(problem, first, seed)
    full = _without_short_cut(changed, monkeypatch)
    short = solve_problem(changed, replace(NEAR, kept_gap=WIDE)).plan
    if full is None or short is None:
        assert full is None
        assert short is None
        return
    assert violations_of(changed, short) == []
    assert short.certificate.bound >= full.certificate.objective * (1 - 1e-9)
    assert short.certificate.objective >= full.certificate.objective / (1 + WIDE) - 1e-9


def test_nothing_changed_and_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was good enough when it was made is so still: no choice is made anew, no task is moved."""
    tables = {"a": {n: 60.0 / n**0.9 for n in range(1, 9)}, "b": {n: 40.0 / n**0.8 for n in range(1, 9)}}
    tasks = tuple(table_task(f"t{n}", 1.0 + n % 3, tables, restart_s=60.0) for n in range(6))
    problem = Problem(table_cluster(24, 8), tasks)
    plan = solve_problem(problem, NEAR).require_plan()
    same = replace(problem, running=with_running(problem, plan, 3).running)
    monkeypatch.setattr(restricted_master, "select", lambda *args: pytest.fail("looked for another choice"))
    monkeypatch.setattr(solve_stages, "_baselines", lambda *args: pytest.fail("looked for another choice"))
    assert len(same.running) == len(plan.running)
    again = solve_problem(same, replace(NEAR, kept_gap=WIDE)).require_plan()
    assert not any(task.moved for task in again.running)
    assert violations_of(same, again) == []
    assert again.certificate.objective == pytest.approx(plan.certificate.objective)

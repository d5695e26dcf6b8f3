"""A running plan that prices prove near enough to the best stays as it is, and at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_problems import random_problem, with_running

from libra_plan.planner.optimize import solve_stages
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.colgen.oracle import Found
from libra_plan.planner.optimize.colgen.resources import Resources
from libra_plan.planner.optimize.colgen.search import Limits, optimise, stays
from libra_plan.planner.optimize.colgen.table import TableOracle
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Problem
from libra_plan.planner.tables import table_cluster, table_task
from libra_plan.planner.verify import violations_of

EXACT = SolveParams(gap=1e-6, time_limit_s=20.0)
WIDE = 0.05


def _without_short_cut(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> Plan | None:
    with monkeypatch.context() as patched:
        patched.setattr(solve_stages, "running_stays", lambda *args, **kwargs: None)
        return solve_problem(problem, EXACT).plan


@pytest.mark.parametrize("seed", range(40, 70))
def test_staying_is_as_good_as_a_full_solve(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has changed, the answer is worth what the full solve's is, but for the gap allowed."""
    problem = random_problem(seed)
    first = solve_problem(problem, EXACT).plan
    if first is None:
        return
    changed = with_running(problem, first, seed)
    full = _without_short_cut(changed, monkeypatch)
    short = solve_problem(changed, replace(EXACT, kept_gap=WIDE)).plan
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
    plan = solve_problem(problem, EXACT).require_plan()
    same = replace(problem, running=with_running(problem, plan, 3).running)
    monkeypatch.setattr(solve_stages, "_focus", lambda *args: pytest.fail("looked for another choice"))
    monkeypatch.setattr(solve_stages, "_baselines", lambda *args: pytest.fail("looked for another choice"))
    assert len(same.running) == len(plan.running)
    again = solve_problem(same, replace(EXACT, kept_gap=WIDE)).require_plan()
    assert not any(task.moved for task in again.running)
    assert violations_of(same, again) == []
    assert again.certificate.objective == pytest.approx(plan.certificate.objective)


def _market(seed: int) -> tuple[Resources, list[TableOracle]]:
    rng = np.random.default_rng(seed)
    demands = [rng.integers(1, 9, (12, 2)).astype(float) for _ in range(8)]
    oracles = [TableOracle(each.sum(axis=1) ** 0.7 * rng.uniform(0.8, 1.2, 12), each) for each in demands]
    return Resources(("x", "y"), np.array([30.0, 30.0]), np.zeros((0, 2))), oracles


@pytest.mark.parametrize("seed", range(5))
def test_prices_kept_prove_the_choice_again(seed: int) -> None:
    """The certified gap, at the prices it was certified at, is one round away: not a search."""
    resources, oracles = _market(seed)
    best = optimise(resources, oracles, Limits(gap=1e-9))
    kept = [(each.task, Found(each.value, each.demand, each.handle, 0.0)) for each in best.chosen]
    limits = Limits(gap=0.0, kept_gap=best.priced_gap)
    again = optimise(resources, oracles, limits, running=kept, prices=best.prices)
    assert again.rounds == 1
    assert [(each.task, each.handle) for each in again.chosen] == [(e.task, e.handle) for e in best.chosen]
    assert again.objective == pytest.approx(best.objective)
    assert again.bound >= best.objective


@pytest.mark.parametrize("seed", range(5))
def test_a_poor_choice_does_not_stay(seed: int) -> None:
    """None says that more may be had: a task alone is far from what eight of them are worth."""
    resources, oracles = _market(seed)
    alone = [(0, Found(float(oracles[0].values[0]), oracles[0].demand(0), 0, 0.0))]
    assert stays(resources, oracles, Limits(gap=1e-3), alone) is None

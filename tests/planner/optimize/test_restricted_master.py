"""With very many configurations the solver looks at few: what it claims must hold for all of them."""

from __future__ import annotations

import pytest
from oracle import best_throughput
from random_problems import random_problem, with_running

from libra_plan.planner.optimize import backends
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Problem
from libra_plan.planner.verify import violations_of

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("first", range(0, 60, EACH))
def test_the_bound_over_few_configurations_holds_for_all(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound comes from prices that no configuration beats; an oracle that tries everything must agree."""
    monkeypatch.setattr(backends, "MANY", 0)
    for seed in range(first, first + EACH):
        _check(random_problem(seed), f"seed {seed}")


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

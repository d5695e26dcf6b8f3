"""A solve that somebody stops answers with what it has, however early."""

from __future__ import annotations

import pytest

from libra_plan.planner.optimize import backends
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.interrupter import Interrupter
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Problem
from libra_plan.planner.tables import table_cluster, table_task
from libra_plan.planner.verify import violations_of


class _StopsAtOnce(Interrupter):
    """Presses Ctrl-C as soon as there is a plan to be had."""

    def report(self, objective: float | None, bound: float | None) -> None:
        super().report(objective, bound)
        self.stop()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_stopped_solve_over_many_configurations_has_a_plan(
    at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At thousands of GPUs prices alone take seconds; whoever stops them gets a plan that holds."""
    monkeypatch.setattr(backends, "MANY", 0)
    tables = {"a": {n: 60.0 / n**0.9 for n in range(1, 9)}, "b": {n: 40.0 / n**0.8 for n in range(1, 9)}}
    problem = Problem(table_cluster(48, 8), tuple(table_task(f"t{n}", 1.0 + n % 3, tables) for n in range(9)))
    watch = _StopsAtOnce() if at_once else Interrupter()
    if not at_once:
        watch.stop()  # before anything was looked at
    plan = solve_problem(problem, SolveParams(time_limit_s=600.0, interrupter=watch)).require_plan()
    assert watch.stopped
    assert violations_of(problem, plan) == []
    assert plan.certificate.bound >= plan.certificate.objective > 0

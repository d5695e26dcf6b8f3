"""A solve that somebody stops answers with what it has, however early."""

from __future__ import annotations

import numpy as np
import pytest

from libra_plan.planner.optimize import backends
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.colgen.fronts import MixRole, TableRole
from libra_plan.planner.optimize.colgen.minrate import Form, MinRateTask
from libra_plan.planner.optimize.colgen.resources import Resources
from libra_plan.planner.optimize.colgen.search import Limits, optimise
from libra_plan.planner.optimize.interrupter import Watch
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Problem
from libra_plan.planner.tables import table_cluster, table_task
from libra_plan.planner.verify import violations_of


class _StopsAtOnce(Watch):
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
    watch = _StopsAtOnce() if at_once else Watch()
    if not at_once:
        watch.stop()  # before anything was looked at
    plan = solve_problem(problem, SolveParams(time_limit_s=600.0, watch=watch)).require_plan()
    assert watch.stopped
    assert violations_of(problem, plan) == []
    assert plan.certificate.bound >= plan.certificate.objective > 0


def _task(rng: np.random.Generator) -> MinRateTask:
    """Make a task of a table role and a mix, on one row."""
    number = np.arange(1, 9)
    table = TableRole(
        np.ones((1, 1)),
        (0,),
        np.zeros(8, dtype=np.int64),
        number,
        rng.uniform(0.5, 1) * number**0.9,
        np.zeros(8),
    )
    mix = MixRole(
        np.array([[1.0], [2.0]]),
        (0, 1),
        np.array([0, 1]),
        rng.uniform(0.5, 1.5, 2) * np.array([1.0, 2.0]),
        np.array([8, 4]),
        np.array([1, 2]),
        np.zeros(2),
        8,
        None,
    )
    return MinRateTask(float(rng.uniform(1, 3)), (Form((table,), (mix,)),))


@pytest.mark.parametrize("seed", range(20))
def test_plain_configurations_are_configurations(seed: int) -> None:
    """The first plan is made of them: what they say they are worth and take must be so."""
    rng = np.random.default_rng(seed)
    task, prices = _task(rng), rng.uniform(0.01, 0.3, 1)
    plain = task.plainly(prices)
    best = task.price(prices, 0.0)
    assert plain
    for configuration in plain:
        assert configuration.demand == pytest.approx(task.demand(configuration.handle))
        assert configuration.reduced == pytest.approx(
            configuration.value - float(configuration.demand @ prices)
        )
        assert configuration.reduced <= best.bound + 1e-9


def test_a_plan_comes_before_the_first_bound() -> None:
    """Bounds need every task's exact answer to prices; a plan need not wait for them."""
    rng = np.random.default_rng(1)
    seen: list[tuple[float, float]] = []
    resources = Resources(("gpus",), np.array([40.0]), np.zeros((0, 1)))
    answer = optimise(
        resources,
        [_task(rng) for _ in range(12)],
        Limits(gap=1e-6),
        progress=lambda objective, bound, gap, seconds: seen.append((objective, bound)),
    )
    objective, bound = seen[0]
    assert bound == np.inf
    assert 0.2 * answer.objective < objective <= answer.objective
    assert answer.bound < np.inf

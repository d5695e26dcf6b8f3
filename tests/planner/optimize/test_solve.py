"""`solve_problem` as a whole: what its answer says when there is a plan, none, or not enough time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libra_plan.errors import NoPlanError, TimeLimitError
from libra_plan.planner.optimize.base import (
    SolveParams,
    SolveResult,
    SolverWork,
    Termination,
    TerminationReason,
)
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Policy, Problem
from libra_plan.planner.tables import table_cluster, table_task

EXACT = SolveParams(gap=1e-6, deterministic=True)
HALVED = {1: 8.0, 2: 4.0, 4: 2.0}


def test_the_reason_is_the_status_of_the_plan() -> None:
    """With its bound and its gap."""
    problem = Problem(table_cluster(4), (table_task("a", 1.0, {"r": HALVED}),))
    found = solve_problem(problem, EXACT)
    proof = found.require_plan().certificate
    assert found.termination.reason.value == proof.status.value == "optimal"
    assert found.termination.bound == proof.bound
    assert proof.objective == pytest.approx(1.0)


def test_where_nothing_can_run_there_is_no_plan_and_the_reason_is_told() -> None:
    """A task needs 8 GPUs, and the cluster has 4."""
    large = table_task("large", 1.0, {"r": {8: 1.0}})
    found = solve_problem(Problem(table_cluster(4), (large,)), EXACT)
    assert found.plan is None
    assert found.termination.reason is TerminationReason.INFEASIBLE
    assert "large" in found.termination.detail
    with pytest.raises(NoPlanError, match="no plan exists"):
        found.require_plan()


def test_a_time_limit_without_a_plan_says_how_to_go_on() -> None:
    """It is another error than that no plan exists."""
    result = SolveResult(None, Termination(TerminationReason.TIME_LIMIT, "no choice could be placed"))
    with pytest.raises(TimeLimitError, match="no plan within the time limit") as caught:
        result.require_plan()
    assert "--time-limit" in str(caught.value)


def test_tiers_come_one_after_the_other() -> None:
    """The heavy task of the second tier gets what the first leaves: nothing."""
    high = table_task("high", 1.0, {"r": HALVED})
    low = replace(table_task("low", 100.0, {"r": HALVED}), tier=1)
    plan = solve_problem(Problem(table_cluster(4), (low, high), policy=Policy.PRIORITY), EXACT).require_plan()
    assert [(each.task, each.configuration.gpus) for each in plan.running] == [("high", 4)]
    assert [(each.task, each.code) for each in plan.queued] == [("low", "tier")]


def test_work_is_added_up_where_the_caller_looks() -> None:
    """Several solves may share one count."""
    problem = Problem(table_cluster(4), (table_task("a", 1.0, {"r": HALVED}),))
    work = SolverWork(1.0)
    solve_problem(problem, replace(EXACT, work=work))
    assert work.done_s >= 1.0
    assert EXACT.work is None


def test_fair_shares_may_be_those_of_another_problem() -> None:
    """Held against 8 GPUs, a task on 4 of them has half of what it would have there."""
    small = Problem(table_cluster(4), (table_task("a", 1.0, {"r": {4: 2.0, 8: 1.0}}),))
    plan = solve_problem(small, EXACT, shares_of=replace(small, cluster=table_cluster(8))).require_plan()
    assert plan.certificate.objective == pytest.approx(0.5)

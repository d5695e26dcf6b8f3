"""The plan made of stages: order, who moved, baselines, bounds, gaps and passes of its certificate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libra_plan.models.parallelism import Layout
from libra_plan.planner.configurations.known import KnownConfigurations
from libra_plan.planner.optimize.base import SolveParams, SolverWork
from libra_plan.planner.optimize.build_plan import build_plan
from libra_plan.planner.optimize.master import Budget
from libra_plan.planner.optimize.policies import POLICIES, PolicyResult
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.optimize.solve_stages import SolveStage, StageRequest, solve_stage
from libra_plan.planner.plan import Plan, Status
from libra_plan.planner.problem import Deadline, IncumbentRole, IncumbentTask, Policy, Problem, Task
from libra_plan.planner.tables import TABLE_CLASS, table_cluster, table_task

EXACT = SolveParams(gap=1e-6, deterministic=True)
HALVED = {1: 8.0, 2: 4.0, 4: 2.0}


def _problem(*tasks: Task, gpus: int = 4, **more: object) -> Problem:
    return replace(Problem(table_cluster(gpus), tasks), **more)


def _stage(problem: Problem) -> SolveStage:
    budget = Budget.of(10.0, lambda: 0.0, SolverWork())
    request = StageRequest(
        problem, problem, frozenset(problem.task_of), EXACT, budget, None, None, KnownConfigurations()
    )
    return solve_stage(request, POLICIES[problem.policy], None)


def _built(problem: Problem, stage: SolveStage) -> Plan:
    return build_plan(problem, POLICIES[problem.policy], [stage], stage)


def _with(stage: SolveStage, **changes: object) -> SolveStage:
    assert isinstance(stage.outcome, PolicyResult)
    return replace(stage, outcome=replace(stage.outcome, **changes))


def test_tasks_come_in_the_order_of_the_workload() -> None:
    """Those that run, and those that wait."""
    sizes = {"d": 9, "c": 1, "b": 9, "a": 1}
    problem = _problem(*(table_task(name, 1.0, {"r": {gpus: 1.0}}) for name, gpus in sizes.items()))
    plan = _built(problem, _stage(problem))
    assert [each.task for each in plan.running] == ["c", "a"]
    assert [each.task for each in plan.queued] == ["d", "b"]


def test_the_bound_is_the_least_and_never_below_the_objective() -> None:
    """A bound just below the objective is one of rounding."""
    problem = _problem(table_task("a", 1.0, {"r": HALVED}))
    stage = _stage(problem)
    objective = _built(problem, stage).certificate.objective
    for bounds, bound in (
        ({"lp": objective + 0.5, "cp-sat": objective + 0.25}, objective + 0.25),
        ({"lp": objective - 1e-9}, objective),
    ):
        proof = _built(problem, _with(stage, bounds=bounds)).certificate
        assert proof.bound == bound
        assert proof.gap == pytest.approx((bound - objective) / objective)
        assert proof.bounds == tuple(sorted(bounds.items()))
        assert (proof.status is Status.OPTIMAL) == (bound == objective)


def test_without_any_bound_nothing_is_optimal() -> None:
    """The search ended before anything was proven."""
    problem = _problem(table_task("a", 1.0, {"r": HALVED}))
    proof = _built(problem, _with(_stage(problem), bounds={})).certificate
    assert proof.bound == float("inf")
    assert proof.status is Status.FEASIBLE


def test_a_pass_that_is_not_proven_keeps_a_plan_from_being_optimal() -> None:
    """The least step time of an evaluation is part of what the plan claims."""
    problem = _problem(replace(table_task("a", 1.0, {"r": HALVED}), latency_first=True))
    stage = _stage(problem)
    assert stage.outcome is not None
    (latency,) = stage.outcome.passes
    assert _built(problem, stage).certificate.status is Status.OPTIMAL
    doubtful = _with(stage, passes=(replace(latency, bound=0.5 * latency.objective),))
    assert _built(problem, doubtful).certificate.status is Status.FEASIBLE


def test_moved_is_who_is_placed_otherwise_than_before() -> None:
    """A task that comes back to its GPUs by chance has not moved; a new one has not either."""
    problem = _problem(table_task("a", 1.0, {"r": {1: 1.0}}), table_task("b", 1.0, {"r": {1: 1.0}}))
    stage = _stage(problem)
    plan = _built(problem, stage)
    assert not any(each.moved for each in plan.running)
    own, other = (each.roles[0].replicas for each in plan.running)
    for replicas, moved in ((own, False), (other, True)):
        held = IncumbentTask("a", (IncumbentRole("r", Layout(), replicas, "r"),))
        found = _built(replace(problem, running=(held,)), stage)
        assert [each.moved for each in found.running] == [moved, False]


def test_baselines_are_told_by_name_with_their_objectives() -> None:
    """Both splits by hand; neither is better than the plan."""
    problem = _problem(table_task("a", 1.0, {"r": HALVED}), table_task("b", 3.0, {"r": HALVED}))
    proof = _built(problem, _stage(problem)).certificate
    assert [name for name, _ in proof.baselines] == ["equal-split", "greedy"]
    assert all(value <= proof.objective for _, value in proof.baselines)
    # on 2 GPUs each: a, held against 1 GPU, has twice its reference; b, held against 2 of its 3, once
    assert dict(proof.baselines)["equal-split"] == pytest.approx(2.0 + 3.0)


def test_every_tier_is_a_pass_of_several() -> None:
    """With one tier the certificate itself says it; with two each is told with its bound."""
    tasks = (table_task("a", 1.0, {"r": {1: 1.0}}), replace(table_task("b", 1.0, {"r": {1: 1.0}}), tier=2))
    problem = _problem(*tasks, policy=Policy.PRIORITY)
    passes = solve_problem(problem, EXACT).require_plan().certificate.passes
    assert [each.name for each in passes] == ["tier 0", "tier 2"]
    assert all(each.bound >= each.objective > 0 for each in passes)
    one = solve_problem(replace(problem, tasks=tasks[:1]), EXACT).require_plan()
    assert one.certificate.passes == ()


def test_costs_and_missed_deadlines_are_told() -> None:
    """4 GPUs at 2 an hour cost 8; a deadline that asks twice the best rate is missed by as much."""
    task = replace(table_task("a", 1.0, {"r": HALVED}), deadline=Deadline(10.0, 10.0))
    problem = _problem(task)
    cluster = replace(problem.cluster, price_per_gpu_hour=((TABLE_CLASS, 2.0),))
    problem = replace(problem, cluster=cluster, budget_per_hour=100.0)
    proof = solve_problem(problem, EXACT).require_plan().certificate
    assert (proof.cost_per_hour, proof.budget_per_hour) == (8.0, 100.0)
    (missed,) = proof.deadlines
    assert missed.wanted_steps_per_s == pytest.approx(1.0)
    assert missed.steps_per_s == missed.best_alone_steps_per_s == pytest.approx(0.5)

"""What one more GPU, one limit further or the next-best plan is worth, against trying it by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from random_problems import random_problem

from libra_plan.models.topology import Gpu, GpuId, Node
from libra_plan.planner.explain import explain_no_plan, explain_plan, relaxed
from libra_plan.planner.explain.margins import gains_of_limits, next_best, one_more_gpu
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.objective import candidates_of
from libra_plan.planner.optimize.placement import place
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Policy, Problem
from libra_plan.planner.tables import TABLE_CLASS, table_cluster, table_task

EXACT = SolveParams(gap=0.0, time_limit_s=20.0)


def linear(name: str, weight: float = 1.0, most: int = 8, **limits: object):
    return table_task(name, weight, {"train": {g: 12.0 / g for g in range(1, most + 1)}}, **limits)


def solved(problem: Problem) -> Plan:
    return solve_problem(problem, EXACT).require_plan()


def test_a_gpu_is_priced_as_what_it_adds() -> None:
    """Two tasks that scale perfectly share 4 GPUs: each is worth 1 on its 2, a GPU adds a half."""
    problem = Problem(table_cluster(4), (linear("a"), linear("b")))
    (more,) = one_more_gpu(problem, solved(problem), EXACT)
    assert more.price == pytest.approx(0.5)
    assert more.price_in_node == pytest.approx(0.5)
    assert more.gain == pytest.approx(0.5)
    assert len(more.goes_to) == 1


def test_a_gpu_nobody_can_use_is_worth_nothing() -> None:
    """A price for it would send people shopping."""
    problem = Problem(table_cluster(4), (linear("a", most=2), linear("b", most=2)))
    (more,) = one_more_gpu(problem, solved(problem), EXACT)
    assert (more.gain, more.goes_to, more.price) == (0.0, (), pytest.approx(0.0))


def test_max_min_prices_the_worst_task() -> None:
    """Its objective is the level of the worst: one GPU more for two tasks raises it by a quarter."""
    problem = Problem(table_cluster(4), (linear("a"), linear("b")), policy=Policy.MAX_MIN)
    (more,) = one_more_gpu(problem, solved(problem), EXACT)
    assert more.price == pytest.approx(0.25)
    assert more.gain == pytest.approx(0.0)  # half a GPU each cannot be had


def test_the_gain_of_a_gpu_is_that_of_solving_again() -> None:
    """The price of a fraction is no promise; the gain is."""
    for seed in (2, 6, 9):
        problem = random_problem(seed)
        plan = solved(problem)
        for more in one_more_gpu(problem, plan, EXACT):
            memory_mib = problem.cluster.memory_mib(more.gpu_class)
            node = Node("more", (Gpu(GpuId("more", 0), more.gpu_class, memory_mib),))
            first = problem.cluster.nodes[0]
            if first.cpu_cores is not None or first.host_memory_mib is not None:
                continue
            cluster = replace(problem.cluster, nodes=(*problem.cluster.nodes, node))
            again = solve_problem(replace(problem, cluster=cluster), EXACT, shares_of=problem).require_plan()
            gain = again.certificate.objective - plan.certificate.objective
            assert more.gain == pytest.approx(max(0.0, gain), abs=1e-6)


def test_the_limit_that_helps_most_comes_first() -> None:
    """Of two tasks held down, the one of the higher weight; a limit that binds nobody is not told."""
    tasks = (
        linear("light", 1.0, max_gpus=2),
        linear("heavy", 3.0, max_gpus=2),
        linear("free", 1.0, most=2, max_gpus=6),
    )
    problem = Problem(table_cluster(8), tasks)
    plan = solved(problem)
    gains = gains_of_limits(problem, plan, EXACT)
    assert [each.limit.text for each in gains] == [
        "raise max_gpus of heavy from 2 to 3",
        "raise max_gpus of light from 2 to 3",
    ]
    for each in gains:
        assert each.at_most is not None
        assert 0 < each.gain <= each.at_most + 1e-9


def test_gains_of_limits_are_those_of_solving_again() -> None:
    """Followed, the advice must bring what it promised."""
    seen = 0
    for seed in (2, 5, 7, 11, 14):
        problem = random_problem(seed)
        plan = solve_problem(problem, EXACT).plan
        for each in gains_of_limits(problem, plan, EXACT) if plan else ():
            again = solve_problem(relaxed(problem, [each.limit]), EXACT, shares_of=problem).require_plan()
            assert again.certificate.objective - plan.certificate.objective == pytest.approx(each.gain)
            seen += 1
    assert seen >= 3


def second_best(problem: Problem, plan: Plan) -> float | None:
    """Try every combination of candidates that is not the plan's."""
    tasks = candidates_of(problem, problem)
    chosen = {running.task: running.configuration.phases for running in plan.running}
    best = None
    for picks in product(*([None, *range(len(each.candidates))] for each in tasks)):
        choice = {t: c for t, c in enumerate(picks) if c is not None}
        ways = {tasks[t].task.id: tasks[t].candidates[c].configuration.phases for t, c in choice.items()}
        worth = sum(tasks[t].candidates[c].value for t, c in choice.items())
        if not choice or ways == chosen or (best is not None and worth <= best):
            continue
        if place(problem, tasks, choice, EXACT, limit_s=5.0) is not None:
            best = worth
    return best


def test_the_next_best_plan_is_the_best_other_one() -> None:
    """Enumeration knows it; a forbidden combination must not forbid its neighbours."""
    compared = 0
    for seed in range(0, 40):
        problem = random_problem(seed)
        combinations = 1
        for each in candidates_of(problem, problem):
            combinations *= len(each.candidates) + 1
        plan = solve_problem(problem, EXACT).plan
        if plan is None or combinations > 400:
            continue
        other, known = next_best(problem, plan, EXACT), second_best(problem, plan)
        assert (other is None) == (known is None), seed
        if other is not None:
            assert other.objective == pytest.approx(known, abs=2e-6), seed
            assert other.loss == pytest.approx(plan.certificate.objective - known, abs=2e-6), seed
            assert other.differs
        compared += 1
    assert compared >= 10


def test_who_waits_because_it_cannot_run_is_told_what_must_give_way() -> None:
    """A plan for the others is no reason to leave a stuck task unexplained."""
    problem = Problem(table_cluster(4), (linear("a"), table_task("b", 1.0, {"train": {8: 1.0}})))
    told = explain_plan(problem, solved(problem), EXACT)
    assert [each.task for each in told.cannot_run] == ["b"]
    assert "add 4 blocks of 1 free GPUs of class table" in told.cannot_run[0].text
    assert told.next_best is not None
    assert told.one_more_gpu[0].gpu_class == TABLE_CLASS


def test_a_problem_without_a_plan_is_explained_task_by_task() -> None:
    """The message of exit code 3 is made of these."""
    problem = Problem(table_cluster(2), tuple(linear(f"t{n}", most=1, min_gpus=3) for n in range(5)))
    assert solve_problem(problem, EXACT).plan is None
    told = explain_no_plan(problem, 60.0)
    assert [each.task for each in told] == ["t0", "t1", "t2"]
    assert all("lower min_gpus of t" in each.text for each in told)

"""Max-min by hand: the worst first, then the next worst, and the sum last."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.objective import candidates_of
from libra_plan.planner.optimize.policies.max_min import MaxMin
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Policy, Problem, Task
from libra_plan.planner.tables import table_cluster, table_task

EXACT = SolveParams(gap=0.0, deterministic=True)


def _solved(*tasks: Task, gpus: int) -> tuple[Plan, dict[str, int]]:
    problem = Problem(table_cluster(gpus), tasks, policy=Policy.MAX_MIN)
    plan = solve_problem(problem, EXACT).require_plan()
    return plan, {each.task: each.configuration.gpus for each in plan.running}


def test_the_worst_task_is_raised_where_the_sum_would_leave_it_waiting() -> None:
    """The sum is largest with `fast` on both GPUs; max-min gives each one GPU."""
    fast = table_task("fast", 1.0, {"r": {1: 8.0, 2: 1.0}})
    slow = table_task("slow", 1.0, {"r": {1: 8.0}})
    plan, gpus = _solved(fast, slow, gpus=2)
    assert gpus == {"fast": 1, "slow": 1}
    assert plan.certificate.objective == pytest.approx(1.0)
    summed = Problem(table_cluster(2), (fast, slow))
    assert len(solve_problem(summed, EXACT).require_plan().running) == 1


def test_the_second_worst_comes_before_the_sum() -> None:
    """`flat` stays at its level whatever it has, so the GPUs left raise `poor` and not `rich`.

    Shares are 2 GPUs each. `poor` has half of its rate there on one GPU, `rich` all of its own on either.
    """
    flat = table_task("flat", 1.0, {"r": {1: 8.0, 2: 8.0}}, max_gpus=2)
    poor = table_task("poor", 1.0, {"r": {1: 8.0, 2: 4.0}})
    rich = table_task("rich", 1.0, {"r": {2: 4.0, 3: 1.0}})
    _, gpus = _solved(flat, poor, rich, gpus=5)
    assert gpus == {"flat": 1, "poor": 2, "rich": 2}


def test_ranks_compare_the_worst_first() -> None:
    """A task that cannot run at all takes no part."""
    both = (table_task(name, 1.0, {"r": {1: 8.0, 2: 4.0}}) for name in "ab")
    tasks = (*both, table_task("c", 1.0, {"r": {9: 1.0}}))
    problem = Problem(table_cluster(4), tasks)
    search = SimpleNamespace(tasks=candidates_of(problem, problem))
    one, two = sorted((0, 1), key=lambda c: search.tasks[0].candidates[c].configuration.gpus)
    rank, objective = MaxMin().rank, MaxMin().objective
    assert objective(search, {0: two}) == 0.0
    assert objective(search, {0: one, 1: two}) == search.tasks[0].candidates[one].normalised
    assert rank(search, {0: one, 1: one}) > rank(search, {0: two})
    assert rank(search, {0: one, 1: two}) > rank(search, {0: one, 1: one})

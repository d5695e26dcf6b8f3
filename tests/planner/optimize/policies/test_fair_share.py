"""Fair share by hand: what quotas give, what is borrowed, and what each team is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Policy, Problem, Quota, Task
from libra_plan.planner.tables import table_cluster, table_task

EXACT = SolveParams(gap=1e-6, deterministic=True)
HALVED = {1: 8.0, 2: 4.0, 4: 2.0}


def _task(name: str, team: str | None, weight: float = 1.0, seconds: dict[int, float] = HALVED) -> Task:
    return replace(table_task(name, weight, {"r": seconds}), team=team)


def _solved(*tasks: Task, quotas: tuple[Quota, ...], gpus: int = 4) -> tuple[Plan, dict[str, int]]:
    problem = Problem(table_cluster(gpus), tasks, policy=Policy.FAIR_SHARE, quotas=quotas)
    plan = solve_problem(problem, EXACT).require_plan()
    return plan, {each.task: each.configuration.gpus for each in plan.running}


def test_a_heavier_team_does_not_take_what_another_has_by_quota() -> None:
    """The sum alone would give all 4 GPUs to `red`, whose task gains more by each."""
    tasks = (_task("r", "red", 9.0, {1: 8.0, 2: 4.0, 4: 0.5}), _task("b", "blue"))
    _, gpus = _solved(*tasks, quotas=(Quota("red", 2), Quota("blue", 2)))
    assert gpus == {"r": 2, "b": 2}
    plain = Problem(table_cluster(4), tasks)
    assert [each.task for each in solve_problem(plain, EXACT).require_plan().running] == ["r"]


def test_what_a_team_leaves_idle_is_borrowed_and_told() -> None:
    """`blue` runs on one GPU only, so `red` has its own 2 and borrows the third of 4 that it can use."""
    one = _task("b", "blue", seconds={1: 1.0})
    wide = _task("r", "red", seconds={2: 4.0, 3: 2.0})
    plan, gpus = _solved(wide, one, quotas=(Quota("red", 2), Quota("blue", 2)))
    assert gpus == {"r": 3, "b": 1}
    red, blue = plan.certificate.teams
    assert (red.team, red.quota_gpus, red.gpus, red.borrowed_gpus) == ("red", 2, 3, 1)
    assert (blue.team, blue.gpus, blue.borrowed_gpus) == ("blue", 1, 0)
    assert red.worth == pytest.approx(2 * red.worth_at_quota)  # 2 s a step instead of 4
    assert blue.worth == pytest.approx(blue.worth_at_quota)
    assert [each.name for each in plan.certificate.passes] == ["quota", "borrow"]


def test_a_task_without_a_team_only_borrows() -> None:
    """It runs where GPUs are idle and waits where a team uses all of its quota."""
    free = _task("free", None, seconds={1: 1.0})
    half = _task("r", "red", seconds={2: 4.0})
    _, gpus = _solved(half, free, quotas=(Quota("red", 4),))
    assert gpus == {"r": 2, "free": 1}
    full = _task("r", "red", seconds={4: 2.0})
    plan, gpus = _solved(full, free, quotas=(Quota("red", 4),))
    assert gpus == {"r": 4}
    assert [(each.task, each.code) for each in plan.queued] == [("free", "quota")]

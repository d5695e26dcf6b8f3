"""The explanation of a plan holds every part, within the time that one solve may take."""

from __future__ import annotations

import itertools

from random_problems import random_problem

from libra_plan.planner.explain import explain_no_plan, explain_plan, runs_alone
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem

EXACT = SolveParams(gap=0.0, time_limit_s=20.0)


def test_waiting_tasks_are_part_of_the_explanation():
    """Whoever asks why looks for the tasks that wait first."""
    seen = 0
    for seed in range(12):
        problem = random_problem(seed)
        plan = solve_problem(problem, EXACT).plan
        if plan is None:
            continue
        told = explain_plan(problem, plan, EXACT)
        assert told.queued == plan.queued
        stuck = {task.id for task in problem.tasks if not runs_alone(problem, task)}
        assert {each.task for each in told.cannot_run} == stuck & {each.task for each in plan.queued}
        assert set(told.to_dict()) == {"explanation", "queued"}
        assert "queued" not in told.to_dict()["explanation"]
        seen += bool(plan.queued)
    assert seen > 2


def test_even_without_time_there_is_something_to_do():
    """An explanation that gives up says nothing to whoever waits for it."""
    ticks = itertools.count(0.0, 1000.0)
    stuck = [
        problem
        for problem in map(random_problem, range(20))
        if problem.tasks and not runs_alone(problem, problem.tasks[0])
    ]
    assert stuck
    for problem in stuck:
        told = explain_no_plan(problem, 0.0, clock=lambda: next(ticks))
        assert told[0].ways or told[0].refused
        assert told[0].refused or not told[0].proven

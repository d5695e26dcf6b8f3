"""Deadlines: the rates they ask, which of them are kept, and what is told of the others."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from libra_plan.planner.optimize.base import SolveParams, SolverWork
from libra_plan.planner.optimize.constraints import base_constraints
from libra_plan.planner.optimize.master import Budget, Search
from libra_plan.planner.optimize.objective import candidates_of
from libra_plan.planner.optimize.policies.base import BestRates
from libra_plan.planner.optimize.policies.deadlines import keep_deadlines, slack_of, wanted_steps_per_s
from libra_plan.planner.problem import Deadline, Problem, Task
from libra_plan.planner.tables import table_cluster, table_task

HALVED = {1: 8.0, 2: 4.0, 4: 2.0}


def _search(*tasks: Task, gpus: int = 4) -> Search:
    problem = Problem(table_cluster(gpus), tasks)
    made = candidates_of(problem, problem)
    budget = Budget.of(10.0, lambda: 0.0, SolverWork())
    params = SolveParams(gap=0.0, deterministic=True)
    return Search(problem, made, base_constraints(made, problem.cluster), params, budget)


def _task(name: str = "a", weight: float = 1.0, **more: object) -> Task:
    return replace(table_task(name, weight, {"r": HALVED}), **more)


def test_the_rate_that_is_wanted() -> None:
    """10 steps in 40 s; a move of 20 s leaves 20 s for them, one of 40 s nothing; the larger rate counts."""
    task = _task(deadline=Deadline(10.0, 40.0), restart_s=20.0)
    assert wanted_steps_per_s(task, moved=False) == 0.25
    assert wanted_steps_per_s(task, moved=True) == 0.5
    assert wanted_steps_per_s(replace(task, restart_s=40.0), moved=True) == math.inf
    assert wanted_steps_per_s(replace(task, min_steps_per_s=0.4), moved=False) == 0.4
    assert wanted_steps_per_s(_task(), moved=True) == 0.0


def test_all_deadlines_are_demanded_where_all_can_be_kept() -> None:
    """Each needs 2 of 4 GPUs."""
    search = _search(*(_task(name, min_steps_per_s=0.25) for name in "ab"))
    missed, choice = keep_deadlines(search, None)
    assert missed == {}
    assert choice is not None
    rates = [search.tasks[t].candidates[c].configuration.steps_per_s for t, c in choice.items()]
    assert rates == [0.25, 0.25]


@pytest.mark.parametrize("heavy", [0, 1])
def test_of_two_that_exclude_each_other_the_heavier_is_kept(heavy: int) -> None:
    """Both need all 4 GPUs; the other could have that rate alone, and nothing beside the one kept."""
    weights = [2.0 if t == heavy else 1.0 for t in (0, 1)]
    search = _search(*(_task(f"t{t}", weights[t], min_steps_per_s=0.5) for t in (0, 1)))
    missed, _ = keep_deadlines(search, None)
    assert missed == {1 - heavy: BestRates(0.5, 0.0)}
    assert [row.name for row in search.constraints if row.code == "deadline"] == [f"deadline:t{heavy}"]


def test_more_deadlines_are_kept_rather_than_heavier_ones() -> None:
    """Two light ones of 2 GPUs each, not the heavy one of 4."""
    search = _search(
        _task("heavy", 5.0, min_steps_per_s=0.5), *(_task(name, min_steps_per_s=0.25) for name in "ab")
    )
    missed, choice = keep_deadlines(search, None)
    assert set(missed) == {0}
    assert choice is not None
    assert set(choice) >= {1, 2}


def test_what_is_missed_is_told_and_what_is_kept_is_not() -> None:
    """A waiting task misses its deadline at a rate of 0; an impossible one asks no rate."""
    search = _search(
        _task("kept", min_steps_per_s=0.25),
        _task("waits", min_steps_per_s=0.25),
        _task("moved", deadline=Deadline(1.0, 5.0), restart_s=9.0),
    )
    two = next(c for c, e in enumerate(search.tasks[0].candidates) if e.configuration.gpus == 2)
    found = slack_of(search, range(3), {0: two, 2: two}, {2: True}, {1: BestRates(0.5, None)})
    waits, moved = found
    assert (waits.task, waits.wanted_steps_per_s, waits.steps_per_s) == ("waits", 0.25, 0.0)
    assert (waits.best_alone_steps_per_s, waits.best_beside_steps_per_s) == (0.5, None)
    assert (moved.task, moved.wanted_steps_per_s, moved.steps_per_s) == ("moved", None, 0.25)

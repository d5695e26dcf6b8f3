"""Requirements before the policy: deadlines, latency-first step times, and tasks that waited too long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libra_plan.planner.optimize.base import SolveParams, SolverWork
from libra_plan.planner.optimize.baselines import keeps_all
from libra_plan.planner.optimize.constraints import base_constraints
from libra_plan.planner.optimize.master import Budget, Search
from libra_plan.planner.optimize.objective import candidates_of
from libra_plan.planner.optimize.policies.requirements import require, run_overdue
from libra_plan.planner.problem import Deadline, Problem, Task
from libra_plan.planner.tables import table_cluster, table_task

HALVED = {1: 8.0, 2: 4.0, 4: 2.0}


def _search(*tasks: Task, gpus: int = 4, aging_s: float | None = None) -> Search:
    problem = replace(Problem(table_cluster(gpus), tasks), aging_s=aging_s)
    made = candidates_of(problem, problem)
    budget = Budget.of(10.0, lambda: 0.0, SolverWork())
    params = SolveParams(gap=0.0, deterministic=True)
    return Search(problem, made, base_constraints(made, problem.cluster), params, budget)


def _task(name: str = "a", weight: float = 1.0, **more: object) -> Task:
    return replace(table_task(name, weight, {"r": HALVED}), **more)


def _gpus(search: Search, t: int) -> dict[int, int]:
    """Map GPUs to the candidate of a task that takes so many."""
    return {entry.configuration.gpus: c for c, entry in enumerate(search.tasks[t].candidates)}


def _added(search: Search, code: str) -> list[str]:
    return [row.name for row in search.constraints if row.code == code]


def test_nothing_is_required_of_plain_tasks() -> None:
    """No constraint, no pass, no choice."""
    search = _search(_task())
    before = list(search.constraints)
    required = require(search, None)
    assert (required.missed, required.passes, required.hint) == ({}, (), None)
    assert search.constraints == before


def test_the_marked_task_is_as_fast_as_it_can_be_and_stays_so() -> None:
    """4 GPUs take 2 s, weight 3: the pass is at 6 weighted seconds, and fewer GPUs are forbidden."""
    search = _search(_task("a"), _task("b", 3.0, latency_first=True))
    (latency,) = require(search, None).passes
    assert (latency.objective, latency.bound) == (pytest.approx(6.0), pytest.approx(6.0, abs=1e-4))
    assert _added(search, "latency") == ["latency-first:b"]
    numbers = _gpus(search, 1)
    assert keeps_all(search.constraints, {1: numbers[4]})
    assert not keeps_all(search.constraints, {1: numbers[2]})
    assert not keeps_all(search.constraints, {})


def test_the_weighted_sum_of_step_times_is_the_least() -> None:
    """On 6 GPUs, weights 1 and 3 want 2 and 4 of them: 4 + 3 · 2 s, and not 2 + 3 · 4 s."""
    marked = (_task("a", 1.0, latency_first=True), _task("b", 3.0, latency_first=True))
    search = _search(*marked, gpus=6)
    required = require(search, None)
    assert required.passes[0].objective == pytest.approx(10.0)
    assert required.hint == {0: _gpus(search, 0)[2], 1: _gpus(search, 1)[4]}


def test_as_many_marked_tasks_run_as_can_before_any_is_fast() -> None:
    """Two on 2 GPUs each run rather than one on 4."""
    marked = tuple(_task(name, latency_first=True) for name in "ab")
    required = require(_search(*marked), None)
    assert required.hint is not None
    assert set(required.hint) == {0, 1}
    assert required.passes[0].objective == pytest.approx(8.0)


def test_a_deadline_comes_before_the_step_times() -> None:
    """The deadline takes 2 of 4 GPUs, so the marked task has 2 left and not all 4."""
    needs_two = _task("a", deadline=Deadline(10.0, 40.0))
    search = _search(needs_two, _task("b", latency_first=True))
    required = require(search, None)
    assert required.missed == {}
    assert _added(search, "deadline") == ["deadline:a"]
    assert required.passes[0].objective == pytest.approx(4.0)
    assert required.hint == {0: _gpus(search, 0)[2], 1: _gpus(search, 1)[2]}


# ---------------------------------------------------------------- aging under max-min


def test_tasks_that_have_waited_longest_together_run() -> None:
    """Two that waited 70 s and 60 s are more than one of 100 s, of which the cluster has room for either."""
    single = {"r": {1: 1.0}}
    tasks = (
        replace(table_task("whole", 1.0, {"r": {2: 1.0}}), waited_s=100.0),
        replace(table_task("a", 1.0, single), waited_s=70.0),
        replace(table_task("b", 1.0, single), waited_s=60.0),
        replace(table_task("short", 9.0, single), waited_s=59.0),
    )
    search = _search(*tasks, gpus=2, aging_s=60.0)
    assert run_overdue(search, None) == {1: 0, 2: 0}
    assert _added(search, "aging") == ["aging:a", "aging:b"]
    assert not keeps_all(search.constraints, {1: 0})


def test_a_task_that_runs_is_not_overdue_and_without_aging_nobody_is() -> None:
    """What it waited before it ran counts no more."""
    task = _task(waited_s=100.0)
    search = _search(task, aging_s=60.0)
    running = [replace(each, running=True) for each in search.tasks]
    assert run_overdue(replace(search, tasks=running), None) is None
    assert run_overdue(_search(task), None) is None
    assert run_overdue(search, None) is not None

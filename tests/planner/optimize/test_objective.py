"""What a configuration is worth: each part of the formula, by numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libra_plan.planner.optimize.objective import (
    candidates_of,
    cost_per_hour,
    plan_value,
    priced_tasks,
    throughputs,
    urgency,
    values_of,
)
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import Problem, Task
from libra_plan.planner.tables import TABLE_CLASS, table_cluster, table_task

HALVED = {1: 8.0, 2: 4.0, 4: 2.0}


def _problem(*tasks: Task, gpus: int = 4, **more: object) -> Problem:
    return replace(Problem(table_cluster(gpus), tasks), **more)


def test_value_is_weight_times_throughput_against_the_fair_share() -> None:
    """Weights 1 and 3 on 4 GPUs: the shares are 1 and 3 GPUs, the references those on 1 and 2."""
    problem = _problem(table_task("a", 1.0, {"r": HALVED}), table_task("b", 3.0, {"r": HALVED}))
    for each, reference in zip(priced_tasks(problem, problem), (1 / 8, 1 / 4), strict=True):
        assert each.reference == pytest.approx(reference)
        for entry in each.candidates().candidates:
            rate = 1.0 / entry.configuration.step_time_s.value
            assert entry.normalised == pytest.approx(rate / reference)
            assert entry.value == pytest.approx(each.task.weight * rate / reference)


def test_a_task_too_large_for_its_share_is_held_against_its_smallest_form() -> None:
    """It needs 4 GPUs and has a share of 2: its reference is half of what it does on 4."""
    problem = _problem(table_task("a", 1.0, {"r": {4: 2.0}}), table_task("b", 1.0, {"r": HALVED}))
    first, _ = priced_tasks(problem, problem)
    assert first.reference == pytest.approx(0.5 * 2 / 4)


def test_a_move_costs_its_part_of_the_horizon_and_never_everything() -> None:
    """Staying costs nothing; moving costs restart_s ÷ horizon_s; a hundredth is left whatever that is."""
    for restart_s, kept in ((0.0, 1.0), (90.0, 0.91), (5000.0, 0.01)):
        task = table_task("a", 2.0, {"r": HALVED}, restart_s=restart_s)
        problem = _problem(task, horizon_s=1000.0)
        plan = solve_problem(problem).require_plan()
        running = replace(problem, running=held_by(plan))
        (priced,) = priced_tasks(running, running)
        assert priced.stay == pytest.approx(kept)
        for entry in priced.candidates().candidates:
            share = 1.0 if entry.held is not None else kept
            assert entry.value == pytest.approx(2.0 * entry.normalised * share)
        moved = len(priced.table)
        assert priced.values[:moved] == pytest.approx([2.0 * kept * n for n in _normalised(priced)])
        assert priced.values[moved:] == pytest.approx([entry.value for entry in priced.held])
        assert priced.held


def _normalised(priced) -> list[float]:
    return [1.0 / seconds / priced.reference for seconds in priced.table.seconds]


def test_waiting_makes_a_queued_task_count_more_and_a_running_one_not() -> None:
    """Ageing is for those that wait: a task that runs would else hold its GPUs by having once waited."""
    waited = replace(table_task("a", 2.0, {"r": HALVED}), waited_s=1800.0)
    problem = _problem(waited, aging_s=3600.0)
    assert urgency(problem, waited, running=False) == pytest.approx(3.0)
    assert urgency(problem, waited, running=True) == 2.0
    (queued,) = priced_tasks(problem, problem)
    running = replace(problem, running=held_by(solve_problem(problem).require_plan()))
    (runs,) = priced_tasks(running, running)
    assert queued.urgency == pytest.approx(3.0)
    assert runs.urgency == 2.0
    for entry in runs.candidates().candidates:
        assert entry.value <= 2.0 * entry.normalised * (1 + 1e-12)


def test_a_plan_is_worth_the_sum_of_what_is_chosen() -> None:
    """Queued tasks add nothing; the worst throughput counts them as 0, unless nothing could run them."""
    tasks = (
        table_task("a", 1.0, {"r": HALVED}),
        table_task("b", 3.0, {"r": HALVED}),
        Task("c", 1.0, (), _SYNC),
    )
    problem = _problem(*tasks)
    found = candidates_of(problem, problem)
    values = values_of(found)
    assert plan_value(found, {0: 0, 1: 1}) == pytest.approx(values[0, 0] + values[1, 1])
    assert throughputs(found, {1: 1}) == [0.0, found[1].candidates[1].normalised]


_SYNC = table_task("x", 1.0, {"r": HALVED}).coupling


def test_alike_tasks_share_one_table() -> None:
    """Twenty thousand tasks of a few kinds cost a few tables: names, weights and tiers make no difference."""
    one = table_task("a", 1.0, {"r": HALVED})
    problem = _problem(one, replace(one, id="b", weight=5.0, tier=2), table_task("c", 1.0, {"r": HALVED}))
    tables = [each.table for each in priced_tasks(problem, problem)]
    assert tables[0].counts is tables[1].counts
    assert tables[0].counts is tables[2].counts
    assert [table.task.id for table in tables] == ["a", "b", "c"]


def test_costs_add_up_or_are_unknown() -> None:
    """A class without a price makes the cost unknown, never 0."""
    problem = _problem(table_task("a", 1.0, {"r": HALVED}))
    plan = solve_problem(problem).require_plan()
    assert cost_per_hour(problem.cluster, plan.configurations) is None
    priced = replace(problem.cluster, price_per_gpu_hour=((TABLE_CLASS, 2.5),))
    assert cost_per_hour(priced, plan.configurations) == pytest.approx(10.0)

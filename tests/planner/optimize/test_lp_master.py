"""The master problem as arrays: worked out by hand, and weak duality against every choice there is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from libra_plan.planner.optimize.constraints import Constraint
from libra_plan.planner.optimize.lp_master import Master, duals_of, largest, master_of, units_of
from libra_plan.planner.optimize.objective import TaskCandidates, candidates_of, values_of
from libra_plan.planner.problem import Problem
from libra_plan.planner.tables import table_cluster, table_task

SECONDS = {1: 8.0, 2: 4.0}


def _two_tasks() -> list[TaskCandidates]:
    """Return two tasks with two configurations each."""
    tasks = tuple(table_task(name, 1.0, {"r": SECONDS}) for name in "ab")
    problem = Problem(table_cluster(3), tasks)
    found = candidates_of(problem, problem)
    assert all(len(each.candidates) == 2 for each in found)
    return found


def _master() -> Master:
    """Write 3 GPUs for two tasks: 1 GPU is worth 2 and 2 GPUs 3 to the first, 1 and 4 to the second."""
    gpus = Constraint("gpus", {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 1.0, (1, 1): 2.0}, 3.0)
    one = [Constraint(f"one:{t}", {(t, 0): 1.0, (t, 1): 1.0}, 1.0) for t in (0, 1)]
    values = {(0, 0): 2.0, (0, 1): 3.0, (1, 0): 1.0, (1, 1): 4.0}
    return master_of(_two_tasks(), [*one, gpus], values)


def _choices() -> list[dict[int, int]]:
    """List every choice: each task waits or has one of its two configurations."""
    ways = product((None, 0, 1), repeat=2)
    return [{t: c for t, c in enumerate(way) if c is not None} for way in ways]


def test_that_a_task_runs_once_needs_no_constraint() -> None:
    """A constraint `one:` of a single task is left out; the shared one stays."""
    master = _master()
    assert master.names == ("gpus",)
    assert master.first.tolist() == [0, 2, 4]
    assert master.task.tolist() == [0, 0, 1, 1]


def test_a_constraint_of_tasks_that_run_jointly_stays() -> None:
    """It says that one of them runs on its own or both jointly, which no single task knows."""
    shared = Constraint("one:a", {(0, 0): 1.0, (1, 0): 1.0}, 1.0)
    assert master_of(_two_tasks(), [shared], {}).names == ("one:a",)


def test_amounts_of_a_choice_add_up() -> None:
    """2 + 1 GPUs fit in 3, and 2 + 2 do not."""
    master = _master()
    assert master.taken(master.number({0: 1, 1: 0})).tolist() == [3.0]
    assert master.keeps(master.number({0: 1, 1: 0}))
    assert not master.keeps(master.number({0: 1, 1: 1}))
    assert master.demand(1, 3).tolist() == [[2.0], [1.0]]


def test_numbers_and_choices_translate_both_ways() -> None:
    """A waiting task has no number."""
    master = _master()
    for choice in _choices():
        assert master.choice(master.number(choice)) == choice
    assert master.number({1: 1}).tolist() == [3]


def test_prices_bound_by_hand() -> None:
    """At 1.5 per GPU: 3 · 1.5 for the GPUs, 0.5 beside them for the first task, 1.0 for the second."""
    master = _master()
    prices = np.array([1.5])
    assert master.reduced(prices).tolist() == pytest.approx([0.5, 0.0, -0.5, 1.0])
    assert master.best(master.reduced(prices)).tolist() == pytest.approx([0.5, 1.0])
    assert master.bound(prices) == pytest.approx(6.0)
    assert master.loss(prices).tolist() == pytest.approx([0.0, 0.5, 1.5, 0.0])


def test_a_task_whose_configurations_cost_more_than_they_are_worth_adds_nothing() -> None:
    """It may wait, so its part of the bound is 0 and not below."""
    master = _master()
    assert master.best(np.array([-1.0, -2.0, -3.0, 4.0])).tolist() == [0.0, 4.0]


@pytest.mark.parametrize("price", [0.0, 0.5, 1.0, 1.5, 2.0, 5.0])
def test_no_choice_exceeds_the_bound_less_its_losses(price: float) -> None:
    """Weak duality, for each choice that keeps the constraints and each of its configurations."""
    master = _master()
    prices = np.array([price])
    bound, loss = master.bound(prices), master.loss(prices)
    for choice in _choices():
        numbers = master.number(choice)
        if master.keeps(numbers):
            value = float(master.value[numbers].sum())
            assert value <= bound
            assert all(value <= bound - loss[number] + 1e-8 for number in numbers)


def test_a_part_keeps_amounts_values_and_tasks() -> None:
    """Configurations 1 and 3 alone: each task has one left."""
    part = _master().part(np.array([1, 3]))
    assert part.first.tolist() == [0, 1, 2]
    assert part.value.tolist() == [3.0, 4.0]
    assert part.demand(0, 2).tolist() == [[2.0], [2.0]]
    assert part.limit.tolist() == [3.0]


def test_units_are_the_largest_amounts() -> None:
    """Amounts below zero count by their size; a constraint that nothing takes of has unit 1."""
    rows = [Constraint("least", {(0, 0): -4.0, (1, 1): 1.0}, -1.0), Constraint("none", {}, 2.0)]
    assert units_of(master_of(_two_tasks(), rows, {})).tolist() == [4.0, 1.0]
    assert largest(np.array([-3.0, 2.0])) == 3.0
    assert largest(np.zeros(0)) == 1.0


def test_only_prices_above_zero_are_told() -> None:
    """They are what a certificate carries."""
    rows = [Constraint(name, {(0, 0): 1.0}, 1.0) for name in ("x", "y")]
    assert duals_of(master_of(_two_tasks(), rows, {}), np.array([0.0, 2.5])) == {"y": 2.5}


def test_values_stand_at_their_configurations_in_whatever_order_they_come() -> None:
    """A value left out is 0."""
    tasks = _two_tasks()
    values = dict(reversed(values_of(tasks).items()))
    found = master_of(tasks, [], values)
    assert found.value.tolist() == [entry.value for each in tasks for entry in each.candidates]
    assert master_of(tasks, [], {(1, 0): 7.0}).value.tolist() == [0.0, 0.0, 7.0, 0.0]

"""Worth, charges and bounds of configurations as arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from loops import policy, scaling, two_tasks, unsure, world

from libra_plan.planner.controller.choose import AllowedChanges, choose, kept_choice
from libra_plan.planner.controller.configuration_values import (
    ValueCache,
    charged,
    configuration_values,
    is_plain_sum,
    observed_errors,
    prices_of,
    value_bound,
)
from libra_plan.planner.problem import Policy, Problem

RULES = policy(rule={"gain_up": 0.01, "gain_down": 0.04}, trust={"confidence": 2.0, "shared_error": 0.75})


def priced(problem: Problem) -> Problem:
    return replace(problem, horizon_s=600.0)


def test_keeping_is_charged_nothing_and_a_switch_its_share_of_the_horizon() -> None:
    """Without thresholds a move costs restart_s ÷ horizon_s, here a tenth."""
    problem = priced(two_tasks())
    task = configuration_values(problem).tasks[0]
    values, errors = charged(task, problem, RULES, {}, thresholds=False)
    assert values[: task.moved] == pytest.approx(0.9 * task.values[: task.moved])
    assert values[task.moved :] == pytest.approx(task.values[task.moved :])
    assert task.kept is not None
    assert errors[task.kept] == 0.0


def test_a_change_pays_for_switch_error_and_least_gain() -> None:
    """By the formula of the module, with the error of what is left counted as well as of what is taken."""
    problem = priced(unsure(two_tasks(), 0.1645))  # a relative standard deviation of 0.1
    task = configuration_values(problem).tasks[0]
    values, _ = charged(task, problem, RULES, {})
    error = np.sqrt(2 * (1 - 0.75)) * 0.1
    for number in range(task.moved):
        least = 0.01 if task.gpus[number] >= task.held_gpus else 0.04
        assert values[number] == pytest.approx(task.values[number] * (1 - 0.1 - 2.0 * error - least))


def test_a_placement_that_is_kept_is_charged_neither_threshold_nor_error() -> None:
    """However unsure its step time is: what keeps everything must be worth what it is."""
    problem = priced(unsure(two_tasks(), 0.1645))
    task = configuration_values(problem).tasks[0]
    values, errors = charged(task, problem, RULES, {})
    assert task.error[task.moved :] == pytest.approx(0.1)
    assert values[task.moved :] == pytest.approx(task.values[task.moved :])
    assert not errors[task.moved :].any()
    assert errors[: task.moved].all()


def test_a_waiting_task_is_charged_as_one_that_takes_from_others() -> None:
    """It holds nothing that it could keep, so the larger threshold holds."""
    problem = replace(world(4, [scaling("a", 100.0, 0.9, 4)]), horizon_s=600.0)
    task = configuration_values(problem).tasks[0]
    assert (task.held_gpus, task.kept, task.broken) == (0, None, False)
    assert charged(task, problem, RULES, {})[0] == pytest.approx(task.values * (1 - 0.1 - 0.04))


def test_what_observations_leave_open_counts_by_share_of_the_step() -> None:
    """A form that was observed apart has its own error; a role of one stage is the whole step."""
    problem = two_tasks()
    task = configuration_values(problem).tasks[0]
    option = problem.tasks[0].roles[0].options[0]
    found = observed_errors(task, {("a", "train"): {(option.gpu_class, option.form): 0.2}})
    assert sorted(set(np.round(found, 12))) == [0.0, 0.2]
    assert found[[c for c in range(task.moved) if task.gpus[c] == option.gpus]] == pytest.approx(0.2)


def test_no_choice_is_worth_more_than_the_bound() -> None:
    """At any prices, so at those of the search, which come near to it."""
    table = configuration_values(two_tasks())
    values = [task.values for task in table.tasks]
    found = choose(table, values, AllowedChanges(), 0.0, None)
    assert found.value <= value_bound(table, values, found.prices) <= found.value * 1.01
    assert value_bound(table, values, np.zeros(len(found.prices))) >= found.value
    kept = sum(float(values[t][c]) for t, c in kept_choice(table).items())
    assert kept <= found.value + 1e-9


def test_remembered_prices_are_put_in_the_order_of_the_constraints() -> None:
    """One that is new costs nothing, one below 0 is none, one that is gone is forgotten."""
    table = configuration_values(two_tasks())
    names = table.master.names
    prices = prices_of(table, {names[0]: 0.5, "gone": 3.0})
    assert prices[0] == 0.5
    assert not prices[1:].any()
    assert prices_of(table, {names[0]: -1.0})[0] == 0.0


def test_the_cache_keeps_the_last_four_problems() -> None:
    """The same digest gives the same object, and memory does not grow."""
    cache, problem = ValueCache(), two_tasks()
    first = cache.values_of(problem, "0")
    assert cache.values_of(problem, "0") is first
    for number in range(1, 5):
        cache.values_of(problem, str(number))
    assert list(cache.known) == ["1", "2", "3", "4"]


def test_other_promises_are_no_plain_sum() -> None:
    """Policies, budgets and promises of tasks need the solver that knows them."""
    problem = two_tasks()
    assert is_plain_sum(problem)
    assert not is_plain_sum(replace(problem, policy=Policy.MAX_MIN))
    assert not is_plain_sum(replace(problem, budget_per_hour=1.0))
    promised = replace(problem.tasks[0], min_steps_per_s=0.1)
    assert not is_plain_sum(replace(problem, tasks=(promised, *problem.tasks[1:])))

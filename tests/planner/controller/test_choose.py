"""The best choice within what may change, and what it changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loops import scaling, shifted_world, two_tasks, world

from libra_plan.planner.controller.choose import (
    AllowedChanges,
    actions,
    choose,
    compare,
    kept_choice,
    place_choice,
)
from libra_plan.planner.controller.configuration_values import configuration_values
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import QueuedTask
from libra_plan.planner.tables import table_task
from libra_plan.planner.verify import violations_of


def test_the_best_choice_is_the_solvers() -> None:
    """Values without charges: the objective of an independent solve of the same problem."""
    bare = replace(shifted_world(), running=())
    table = configuration_values(bare)
    found = choose(table, [task.values for task in table.tasks], AllowedChanges(), 0.0, None)
    best = solve_problem(bare).require_plan().certificate.objective
    assert found.value == pytest.approx(best, rel=1e-6)
    assert found.value <= found.bound <= found.value * (1 + 1e-5)


def test_frozen_tasks_keep_what_they_have() -> None:
    """The rest is chosen on what they leave."""
    table = configuration_values(shifted_world())
    values, now = [task.values for task in table.tasks], kept_choice(table)
    found = choose(table, values, AllowedChanges(frozenset({0})), 0.0, None)
    assert found.chosen[0] == now[0]
    assert sum(table.tasks[t].gpus[c] for t, c in found.chosen.items()) <= 8
    everybody = choose(table, values, AllowedChanges(frozenset({0, 1})), 0.0, None)
    assert dict(everybody.chosen) == now
    assert everybody.value == everybody.bound == sum(values[t][c] for t, c in now.items())


def test_banned_configurations_are_not_chosen() -> None:
    """Without any, the task does not run."""
    table = configuration_values(two_tasks())
    values = [task.values for task in table.tasks]
    all_of_a = frozenset(range(len(values[0])))
    found = choose(table, values, AllowedChanges(banned={0: all_of_a}), 0.0, None)
    assert set(found.chosen) == {1}
    assert actions(table, found.chosen)[0] == "pause"


def test_actions_are_named_by_what_becomes_of_the_gpus() -> None:
    """Start, pause, grow, shrink; a task that keeps its placement is not listed."""
    problem = two_tasks()
    problem = replace(problem, tasks=(*problem.tasks, scaling("new", 10.0, 1.0, 1)))
    table = configuration_values(problem)
    task, now = table.tasks[0], kept_choice(table)
    by_gpus = {int(task.gpus[c]): c for c in range(task.moved)}
    assert actions(table, now) == {}
    assert actions(table, {**now, 0: by_gpus[task.held_gpus + 1]}) == {0: "grow"}
    assert actions(table, {**now, 0: by_gpus[1], 2: 0}) == {0: "shrink", 2: "start"}
    assert actions(table, {1: now[1]}) == {0: "pause"}


def test_a_comparison_adds_up() -> None:
    """Gain is worth after less worth before; net is by the charged values."""
    table = configuration_values(shifted_world())
    values, now = [0.9 * task.values for task in table.tasks], kept_choice(table)
    chosen = choose(table, values, AllowedChanges(), 0.0, None).chosen
    found = compare(table, chosen, values, [0 * task.values for task in table.tasks], 1.0)
    before = sum(table.tasks[t].values[c] for t, c in now.items())
    after = sum(table.tasks[t].values[c] for t, c in chosen.items())
    assert found.gain == pytest.approx(after - before)
    assert found.net == pytest.approx(0.9 * after - before)
    assert {move.action for move in found.moves} == {"grow", "shrink"}
    assert all(move.switch_s == 60.0 for move in found.moves)


def test_a_placed_choice_is_a_plan_that_the_verifier_passes() -> None:
    """With its proof, and a reason for every task that waits."""
    problem = replace(two_tasks(), running=())
    table = configuration_values(problem)
    found = choose(table, [task.values for task in table.tasks], AllowedChanges(), 0.0, None)
    plan = place_choice(table, found.chosen, found.prices, {})
    assert plan is not None
    assert violations_of(problem, plan) == []
    assert plan.certificate.objective == pytest.approx(found.value)
    paused = QueuedTask("a", "paused", "a: its user paused it")
    alone = place_choice(table, {1: found.chosen[1]}, found.prices, {"a": paused})
    assert alone is not None
    assert alone.queued == (paused,)
    outbid = place_choice(table, {1: found.chosen[1]}, found.prices, {})
    assert outbid is not None
    assert [(queued.task, queued.code) for queued in outbid.queued] == [("a", "worth")]


def test_what_fits_in_number_but_on_no_nodes_is_no_plan() -> None:
    """Two replicas of three GPUs do not fit on nodes of four and two."""
    tasks = [table_task(name, 1.0, {"train": {3: 10.0}}, replica_gpus={"train": 3}) for name in "ab"]
    problem = world(6, tasks, per_node=4)
    table = configuration_values(problem)
    chosen = dict.fromkeys(range(2), 0)
    assert place_choice(table, {0: 0}, 0 * table.master.limit, {}) is not None
    assert place_choice(table, chosen, 0 * table.master.limit, {}) is None

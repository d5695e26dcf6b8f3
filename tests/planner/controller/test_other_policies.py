"""Looks under policies other than the plain sum: solved whole, charged, adopted when all of it is ripe."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loops import EAGER, Loop, policy, running_best, scaling, shifted_world, training, world

from libra_plan.planner.problem import Policy as Objective
from libra_plan.planner.problem import Problem, Quota
from libra_plan.planner.telemetry.observations import CheckpointAge, Event, EventKind
from libra_plan.planner.verify import violations_of


def tiers() -> Problem:
    """Let a plan run that is far from the best of the policy."""
    return replace(shifted_world(), policy=Objective.PRIORITY)


def test_tiers_and_quotas_go_through_the_planners_own_solve() -> None:
    """Under other policies the plan is charged, ripened and adopted whole."""
    problem = replace(shifted_world(), policy=Objective.PRIORITY, quotas=(Quota("t", 8),))
    loop = Loop(problem, policy(stay={"task_s": 0.0}))
    rules = [looked.decision.rule for looked in loop.looks(4)]
    assert rules[0] == "looks"
    assert "gain" in rules
    assert loop.gpus("b") > 1


@pytest.mark.parametrize("objective", [Objective.PRIORITY, Objective.MAX_MIN])
def test_events_are_acted_on_under_other_policies(objective: Objective) -> None:
    """A lost GPU is no less urgent where the objective is not a sum."""
    tasks = [scaling("a", 100.0, 0.7, 8), scaling("b", 100.0, 0.7, 8)]
    loop = Loop(running_best(replace(world(8, tasks), policy=objective)))
    loop.look()
    held = loop.problem.running[0].roles[0].replicas[0][0]
    looked = loop.look(events=(Event(EventKind.GPU_LOST, gpu=held),))
    assert looked.decision.rule == "event"
    assert looked.decision.plan is not None
    assert loop.gpus("a") > 0
    assert loop.gpus("b") > 0


def test_an_adopted_plan_is_verified_and_its_figures_add_up() -> None:
    """The problem that is recorded is the charged one, which the plan answers."""
    looked = Loop(tiers(), EAGER).look()
    decision = looked.decision
    assert decision.plan is not None
    assert violations_of(looked.problem, decision.plan) == []
    assert decision.gain == pytest.approx(sum(move.worth for move in decision.moves))
    assert decision.net == pytest.approx(decision.gain - decision.cost)
    assert all(task.restart_s > 60.0 for task in looked.problem.tasks)


def test_a_move_that_costs_more_than_the_stay_is_not_made() -> None:
    """The solver sees the charges, so the best plan is the one that runs."""
    problem = tiers()
    dear = replace(problem, tasks=tuple(replace(task, restart_s=1e6) for task in problem.tasks))
    loop = Loop(dear, EAGER)
    assert [looked.decision.rule for looked in loop.looks(2)] == ["best", "best"]


def test_a_task_that_must_stay_keeps_all_of_the_plan() -> None:
    """Such a plan is taken or left whole; the checkpoint it waits for is ordered."""
    loop = Loop(training(tiers(), "a"), EAGER)
    decision = loop.look(checkpoints=(CheckpointAge("a", None),)).decision
    assert (decision.rule, decision.plan, decision.orders) == ("held", None, ("checkpoint:a",))


def test_caps_hold_here_as_well() -> None:
    """Two tasks would be disturbed, and one may be."""
    loop = Loop(tiers(), policy(stay={"task_s": 0.0}, rule={"looks_up": 1, "looks_down": 1},
                                caps={"disturbed_tasks": 1}))  # fmt: skip
    decision = loop.look().decision
    assert (decision.rule, decision.plan) == ("caps", None)


def test_a_pause_frees_the_gpus_at_once() -> None:
    """Under tiers, too, a paused task leaves on the first look."""
    loop = Loop(running_best(tiers()), paused=frozenset({"b"}))
    decision = loop.look().decision
    assert decision.rule == "event"
    assert loop.gpus("b") == 0
    assert loop.gpus("a") > 0

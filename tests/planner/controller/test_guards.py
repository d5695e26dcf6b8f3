"""What a look may not touch: without a safe checkpoint, before its stay, where more GPUs would rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loops import policy, running_best, scaling, training, two_tasks, world

from libra_plan.planner.controller.configuration_values import configuration_values
from libra_plan.planner.controller.guards import (
    is_imbalanced,
    reason_to_hold,
    unsafe_configurations,
    unsafe_to_stop,
    without_oom_forms,
)
from libra_plan.planner.controller.hysteresis import SafetyPolicy
from libra_plan.planner.controller.state import Clock, LoopState, TaskClock
from libra_plan.planner.telemetry.observations import (
    CheckpointAge,
    Event,
    EventKind,
    Observations,
    RoleLoad,
)

POLICY = policy(stay={"task_s": 600.0}, safety={"least_steps": 2, "checkpoint_max_age_s": 100.0})
TRAINS = training(two_tasks(), "a").task_of["a"]


def saved(age_s: float | None) -> Observations:
    return Observations(0.0, checkpoints=(CheckpointAge("a", age_s),))


@pytest.mark.parametrize(
    ("placed_s", "progressed", "age_s", "code"),
    [
        (401.0, True, 5.0, "stay"),
        (400.0, False, 5.0, "progress"),
        (400.0, True, 101.0, "checkpoint"),
        (400.0, True, 100.0, None),
        (None, True, 5.0, None),
    ],
)
def test_the_first_reason_holds_a_task(
    placed_s: float | None, progressed: bool, age_s: float, code: str | None
) -> None:
    """Its stay, then its progress, then its checkpoint; each exactly at its threshold."""
    clock = TaskClock("a", placed_s=placed_s, progressed=progressed)
    found = reason_to_hold(TRAINS, clock, 1000.0, saved(age_s), POLICY)
    assert (None if found is None else found.code) == code


@pytest.mark.parametrize(
    ("age_s", "said"),
    [
        (None, "has no checkpoint"),
        (-6.0, "dated 6 s after now"),
        (float("nan"), "after now"),
        (4000.0, "4000 s old, allowed 3600 s"),
        (3600.0, None),
        (-5.0, None),
    ],
)
def test_a_training_task_stops_with_a_fresh_checkpoint_only(age_s: float | None, said: str | None) -> None:
    """A033: what is missing, stale or dated after now loses work; a checkpoint is ordered first."""
    found = unsafe_to_stop(TRAINS, saved(age_s), SafetyPolicy())
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert said in found.why
        assert found.order == "checkpoint:a"


def test_unknown_is_unsafe_and_what_trains_nothing_is_safe() -> None:
    """No telemetry tells of no checkpoint; a rollout has no state to lose."""
    unknown = unsafe_to_stop(TRAINS, None, SafetyPolicy())
    assert unknown is not None
    assert "not known" in unknown.why
    inference = replace(TRAINS, roles=tuple(replace(role, kind="rollout") for role in TRAINS.roles))
    assert unsafe_to_stop(inference, None, SafetyPolicy()) is None


@pytest.mark.parametrize(
    ("busy", "imbalanced"),
    [
        ((0.9,), False),
        ((0.9, 0.0, 0.0), True),
        ((0.5, 0.0, 0.0), False),  # not busy enough to tell
        ((0.75, 0.25, 0.25), False),  # exactly three times the others
        ((0.76, 0.25, 0.25), True),
    ],
)
def test_one_busy_gpu_is_no_shortage(busy: tuple[float, ...], imbalanced: bool) -> None:
    """A038: one GPU works for all; the thresholds are exact."""
    assert is_imbalanced(RoleLoad("a", "train", gpus_busy=busy)) is imbalanced


def test_an_imbalanced_role_is_given_no_more_gpus() -> None:
    """Every larger configuration is banned, smaller ones are not."""
    table = configuration_values(two_tasks())
    window = Observations(0.0, loads=(RoleLoad("a", "train", gpus_busy=(0.9, 0.0)),))
    banned, notes = unsafe_configurations(table, window, frozenset())
    task = table.tasks[0]
    assert banned == {0: frozenset(c for c in range(len(task.values)) if task.gpus[c] > task.held_gpus)}
    assert banned[0]
    assert "a/train is imbalanced" in notes[0]


def test_a_rigid_task_keeps_the_number_of_its_ranks() -> None:
    """A034: 8 shards do not load on 16, nor on 4."""
    table = configuration_values(training(two_tasks(), "a"))
    task = table.tasks[0]
    banned, _ = unsafe_configurations(table, None, frozenset({"a"}))
    assert banned == {0: frozenset(c for c in range(task.moved) if task.gpus[c] != task.held_gpus)}
    assert len(banned[0]) == task.moved - 1


def test_forms_that_ran_out_of_memory_are_left_out_for_a_time() -> None:
    """The form that ran out and those planned with 98 % of it or more; after `oom_hold_s` all are back."""
    problem = running_best(world(4, [scaling("a", 100.0, 0.9, 4)]))
    need = {1: 120.0, 2: 100.0, 3: 98.5, 4: 98.0}
    role = problem.tasks[0].roles[0]
    options = tuple(replace(option, peak_mib=need[option.gpus]) for option in role.options)
    problem = replace(problem, tasks=(replace(problem.tasks[0], roles=(replace(role, options=options),)),))
    held = problem.running[0].roles[0]
    state = LoopState(clock=Clock(50.0), clocks=(TaskClock("a"),))
    event = Observations(0.0, events=(Event(EventKind.OUT_OF_MEMORY, task="a"),))
    rules = policy(safety={"oom_hold_s": 100.0})
    left, clocks = without_oom_forms(problem, state, event, rules)
    limit = need[len(held.replicas)]
    assert clocks[0].oom_mib == (("train", limit),)
    kept = {option.gpus for option in left.tasks[0].roles[0].options}
    assert kept == {gpus for gpus, mib in need.items() if mib < 0.98 * limit}
    later = replace(state, clock=Clock(150.0), clocks=clocks)
    assert without_oom_forms(problem, later, None, rules)[0] is problem
    sooner = replace(state, clock=Clock(149.0), clocks=clocks)
    assert without_oom_forms(problem, sooner, None, rules)[0] == left

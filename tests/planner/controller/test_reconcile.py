"""One look: still when nothing or only noise happens, right when the world changes, safe always."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import (
    EAGER,
    Loop,
    at,
    policy,
    running_best,
    scaling,
    shifted_world,
    slower,
    training,
    two_tasks,
    unsure,
    well,
    world,
)

from libra_plan.planner.controller.reconcile import reconcile
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState, Rung, to_bytes
from libra_plan.planner.problem import IncumbentTask
from libra_plan.planner.telemetry.observations import (
    BatchStep,
    CheckpointAge,
    Event,
    EventKind,
    Observations,
    ObservedTime,
    RoleLoad,
    TaskProgress,
)
from libra_plan.planner.verify import violations_of


def test_an_unchanged_world_is_left_alone() -> None:
    """The best plan runs and stays: every peer that was measured moves tasks here."""
    loop = Loop(two_tasks(), EAGER)
    loop.looks(30)
    assert loop.moves == []
    assert {looked.decision.rule for looked in loop.all} <= {"bound", "best"}


def test_the_same_inputs_give_the_same_bytes() -> None:
    """Replay rests on it: nothing but inputs and state decides."""
    problem = slower(two_tasks(), {"a": 4.0})
    inputs = LoopInputs(problem, EAGER, at(0), well(problem, at(0)))
    first, second = (reconcile(inputs, LoopState()) for _ in range(2))
    assert to_bytes(first.decision) == to_bytes(second.decision)
    assert to_bytes(first.adopted) == to_bytes(second.adopted)


def test_a_change_waits_for_looks_in_a_row() -> None:
    """What is right for good is right three looks long; what is noise is not."""
    loop = Loop(shifted_world(), policy(rule={"looks_up": 2, "looks_down": 3}))
    rules = [looked.decision.rule for looked in loop.looks(3)]
    assert rules == ["looks", "looks", "gain"]
    assert loop.gpus("b") > loop.gpus("a")


def test_an_adopted_plan_is_verified_and_beats_what_runs() -> None:
    """The loop marks no work of its own: the verifier shares no code with it."""
    loop = Loop(shifted_world(), EAGER)
    looked = loop.look()
    decision = looked.decision
    assert decision.plan is not None
    assert decision.net is not None
    assert decision.net > 0
    assert violations_of(looked.problem, decision.plan) == []


def test_the_switch_has_to_pay_within_the_horizon() -> None:
    """A move that costs more than the stay brings is not made, however good the new place is."""
    problem = shifted_world()
    dear = replace(problem, tasks=tuple(replace(task, restart_s=20_000.0) for task in problem.tasks))
    loop = Loop(dear, EAGER)
    loop.looks(3)
    assert loop.moves == []


def test_a_gain_within_the_models_error_is_none() -> None:
    """Never move for a gain smaller than the error (the lower end decides)."""
    problem = world(4, [scaling("a", 100.0, 0.9, 4), scaling("b", 100.0, 0.9, 4, weight=1.3)])
    running = running_best(replace(problem, tasks=(problem.tasks[0], replace(problem.tasks[1], weight=1.0))))
    problem = replace(running, tasks=problem.tasks)
    sure, doubtful = Loop(problem, EAGER), Loop(unsure(problem, 0.6), EAGER)
    sure.looks(2)
    doubtful.looks(2)
    assert doubtful.moves == []
    assert len(sure.moves) >= len(doubtful.moves)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), noise=st.floats(0.005, 0.04))
def test_noise_below_the_threshold_moves_nothing(seed: int, noise: float) -> None:
    """Rates that only shake are averaged; with the best plan running there is nothing to gain."""
    rng = np.random.default_rng(seed)
    loop = Loop(two_tasks(), policy(stay={"task_s": 0.0}))
    times = {task.id: task.roles[0].options for task in loop.problem.tasks}
    for _ in range(12):
        seen = tuple(
            ObservedTime(
                task, "train", option.time_s.value * float(np.exp(rng.normal(0.0, noise))), option.form
            )
            for task, options in times.items()
            for option in options
        )
        loop.look(seen=seen)
    assert loop.moves == []


@settings(max_examples=20)
@given(weights=st.lists(st.sampled_from([1.0, 4.0, 16.0]), min_size=8, max_size=8))
def test_nothing_moves_twice_within_its_stay(weights: list[float]) -> None:
    """No A → B → A: a task that was placed stays for `task_s`, whatever its weight does meanwhile."""
    loop = Loop(shifted_world(), policy(stay={"task_s": 300.0}, rule={"looks_up": 1, "looks_down": 1}))
    for weight in weights:
        a, b = loop.problem.tasks
        loop.problem = replace(loop.problem, tasks=(a, replace(b, weight=weight)))
        loop.look()
    for task in ("a", "b"):
        when = [number for number, name, _ in loop.moves if name == task]
        assert all(later - earlier >= 5 for earlier, later in pairwise(when))


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), most=st.integers(1, 3))
def test_caps_hold(seed: int, most: int) -> None:
    """No look disturbs more tasks than declared, however much it could gain."""
    rng = np.random.default_rng(seed)
    tasks = [scaling(f"t{n}", 100.0, float(rng.uniform(0.6, 0.95)), 6) for n in range(6)]
    problem = running_best(world(16, tasks))
    heavier = tuple(replace(t, weight=float(rng.choice([0.2, 1.0, 5.0]))) for t in problem.tasks)
    rules = policy(stay={"task_s": 0.0}, caps={"disturbed_tasks": most, "moved_gpus_share": 1.0})
    loop = Loop(replace(problem, tasks=heavier), rules)
    for looked in loop.looks(5):
        disturbed = [move for move in looked.decision.moves if move.action != "start"]
        assert len(disturbed) <= most


@pytest.mark.parametrize("age_s", [None, 7200.0])
def test_no_checkpoint_no_move(age_s: float | None) -> None:
    """A033: missing or stale, a training task stays where it is, and a checkpoint is ordered."""
    problem = training(training(shifted_world(), "a"), "b")
    loop = Loop(problem, EAGER)
    ages = (CheckpointAge("a", age_s), CheckpointAge("b", age_s))
    looked = loop.look(checkpoints=ages)
    assert looked.decision.plan is None
    assert looked.decision.orders == ("checkpoint:a", "checkpoint:b")


def test_ranks_stay_where_a_checkpoint_loads_on_as_many_only() -> None:
    """A034: 8 shards do not load on 16; a task that declares no resharding keeps its ranks."""
    problem = training(training(shifted_world(), "a"), "b")
    loop = Loop(problem, EAGER, rigid=frozenset({"a", "b"}))
    loop.looks(3)
    assert loop.moves == []


def test_a_task_moves_again_only_after_progress() -> None:
    """Preempted before any progress is work for nothing: a placed task must have done a step."""
    loop = Loop(shifted_world(), EAGER)
    loop.look(progress=())
    assert loop.moves == []
    loop.look(progress=(TaskProgress("a", 1.0), TaskProgress("b", 1.0)))
    assert loop.moves != []


def test_an_imbalanced_role_gets_no_more_gpus() -> None:
    """A038: one of eight GPUs busy is a queue of one request, no shortage of GPUs."""
    problem = shifted_world()
    loop = Loop(problem, EAGER)
    busy = (90.0, 0.0)
    looked = loop.look(loads=(RoleLoad("b", "train", gpus_busy=tuple(b / 100 for b in busy)),))
    assert loop.gpus("b") <= 1
    assert any("imbalanced" in note for note in looked.decision.notes)


def test_flipping_queues_change_nothing() -> None:
    """A030: shares that flip every 15 s with queue noise lead to at most one change."""
    pairs = [50, 70, 60, 75, 65, 80, 70]
    problem = running_best(world(10, [scaling("p", 100.0, 0.9, 10), scaling("d", 100.0, 0.9, 10)]))
    loop = Loop(problem)
    for number, share in enumerate(pairs):
        tasks = tuple(
            replace(task, weight=weight / 50.0)
            for task, weight in zip(loop.problem.tasks, (share, 100 - share), strict=True)
        )
        loop.problem = replace(loop.problem, tasks=tasks)
        loop.look(now=at(number, 15.0))
    assert len({number for number, _, _ in loop.moves}) <= 1


def test_memory_that_ran_out_places_the_task_in_another_form() -> None:
    """The form that ran out is not used again for a time; the task gets one that needs less, at once."""
    problem = two_tasks()
    task = problem.tasks[0]
    options = tuple(replace(o, peak_mib=0.9 / o.gpus) for o in task.roles[0].options)
    problem = replace(
        problem, tasks=(replace(task, roles=(replace(task.roles[0], options=options),)), *problem.tasks[1:])
    )
    loop = Loop(problem)
    loop.look()
    before = loop.gpus("a")
    looked = loop.look(events=(Event(EventKind.OUT_OF_MEMORY, task="a"),))
    assert looked.decision.plan is not None
    assert loop.gpus("a") == 0 or loop.gpus("a") > before


def test_a_batch_step_comes_before_any_move() -> None:
    """The cheapest rung that suffices: a batch setting changes, no GPU does."""
    loop = Loop(two_tasks())
    step = BatchStep("a", "train", "micro_batch_tokens", 8192.0, 16384.0, 0.12)
    first = loop.look(batch_steps=(step,))
    second = loop.look(batch_steps=(step,))
    assert first.decision.rung is Rung.KEEP
    assert second.decision.rung is Rung.BATCHES
    assert second.decision.plan is None
    assert second.decision.batch_steps == (step,)


@pytest.mark.parametrize(
    ("task", "role", "saves"), [("ghost", "train", 0.1), ("a", "no", 0.1), ("a", "train", 1.5)]
)
def test_a_batch_step_of_nothing_that_runs_is_none(task: str, role: str, saves: float) -> None:
    """It would stand before every other rung; and no step saves more time than it takes."""
    loop = Loop(two_tasks(), EAGER)
    looked = loop.look(batch_steps=(BatchStep(task, role, "micro_batch_tokens", 1.0, 2.0, saves),))
    assert looked.decision.rung is Rung.KEEP


def test_roles_are_replanned_within_their_gpus_when_that_suffices() -> None:
    """Two roles split four GPUs wrongly: the split changes, the other task is not touched."""
    from libra_plan.planner.problem import Arrangement, Coupling, CouplingKind
    from libra_plan.planner.tables import table_task

    times = {count: 40.0 / count for count in range(1, 9)}
    asynchronous = Coupling(CouplingKind.ASYNC, staleness=1)

    def rl(rollout_factor: float):
        roles = {"train": times, "rollout": {c: t * rollout_factor for c, t in times.items()}}
        return table_task("rl", 4.0, roles, asynchronous, arrangements=[Arrangement.SEPARATE], restart_s=30.0,
                          min_gpus=4, max_gpus=4)  # fmt: skip

    other = replace(scaling("other", 100.0, 0.5, 8), min_gpus=4, max_gpus=4)
    running = running_best(world(8, [rl(1.0), other]))
    loop = Loop(replace(running, tasks=(rl(3.0), other)), EAGER)
    looked = loop.look()
    assert looked.decision.rung is Rung.ROLES
    assert [move.task for move in looked.decision.moves] == ["rl"]


def test_a_first_look_with_nothing_running_starts_what_waits() -> None:
    """A queue without a plan is started by the ordinary rule, on looks in a row."""
    loop = Loop(world(8, [scaling("a", 100.0, 0.7, 8)]))
    rules = [looked.decision.rule for looked in loop.looks(2)]
    assert rules == ["looks", "gain"]
    assert loop.gpus("a") > 0


def test_a_held_task_that_left_the_workload_is_no_trouble() -> None:
    """What is not in the problem any more is neither running nor waiting."""
    problem = two_tasks()
    assert isinstance(problem.running[0], IncumbentTask)
    gone = replace(problem, tasks=problem.tasks[:1], running=problem.running[:1])
    loop = Loop(gone)
    assert loop.look().decision.plan is None
    assert Observations(0.0).seen == ()

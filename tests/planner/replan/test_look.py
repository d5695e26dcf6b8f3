"""One look: still when nothing or only noise happens, right when the world changes, safe always."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import Loop, at, policy, running_best, scaling, slower, unsure, well, world

from libra_plan.models.topology import AbsentGpu, GpuId
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import HeldTask, Problem, Quota
from libra_plan.planner.problem import Policy as Objective
from libra_plan.planner.replan.decision import Rung
from libra_plan.planner.replan.desk import LookInputs
from libra_plan.planner.replan.look import look
from libra_plan.planner.replan.record import to_bytes
from libra_plan.planner.replan.state import LoopState
from libra_plan.planner.replan.window import (
    BatchStep,
    CheckpointAge,
    Event,
    EventKind,
    Load,
    Now,
    Progress,
    Seen,
    Window,
)
from libra_plan.planner.verify import verify

EAGER = policy(stay={"task_s": 0.0}, rule={"looks_up": 1, "looks_down": 1})


def two_tasks(gpus: int = 8) -> Problem:
    """Give two tasks that share the GPUs; the second makes more of them."""
    return running_best(world(gpus, [scaling("a", 100.0, 0.7, gpus), scaling("b", 100.0, 0.8, gpus)]))


def training(problem: Problem, name: str) -> Problem:
    """Let a task's role be one that trains, so that its checkpoint counts."""

    def of(task):
        return (
            replace(task, roles=tuple(replace(r, kind="actor_train") for r in task.roles))
            if task.id == name
            else task
        )

    return replace(problem, tasks=tuple(map(of, problem.tasks)))


def test_an_unchanged_world_is_left_alone() -> None:
    """The best plan runs and stays: every peer that was measured moves tasks here."""
    loop = Loop(two_tasks(), EAGER)
    loop.looks(30)
    assert loop.moves == []
    assert {looked.decision.rule for looked in loop.all} <= {"bound", "best"}


def test_the_same_inputs_give_the_same_bytes() -> None:
    """Replay rests on it: nothing but inputs and state decides."""
    problem = slower(two_tasks(), {"a": 4.0})
    inputs = LookInputs(problem, EAGER, at(0), well(problem, at(0)))
    first, second = (look(inputs, LoopState()) for _ in range(2))
    assert to_bytes(first.decision) == to_bytes(second.decision)
    assert to_bytes(first.adopted) == to_bytes(second.adopted)


def shifted_world() -> Problem:
    """Let a plan run that is far from the best: the heavier task has one GPU of eight."""
    a, b = scaling("a", 100.0, 0.9, 8), scaling("b", 100.0, 0.9, 8)
    running = running_best(world(8, [replace(a, min_gpus=7, max_gpus=7), replace(b, max_gpus=1)]))
    return replace(running, tasks=(a, replace(b, weight=9.0)))


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
    assert verify(looked.problem, decision.plan) == []


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
            Seen(task, "train", option.time_s.value * float(np.exp(rng.normal(0.0, noise))), option.form)
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


def test_a_node_lost_is_replanned_at_once_and_survivors_stay() -> None:
    """A036, A048: the task on the lost node is placed anew on the same look; nobody else moves."""
    tasks = [scaling(f"t{n}", 100.0, 0.5, 8, weight=1.0) for n in range(4)]
    problem = running_best(
        replace(world(32, tasks, per_node=8), tasks=tuple(replace(t, max_gpus=7) for t in tasks))
    )
    loop = Loop(problem)
    loop.look()
    before = {held.task: held for held in loop.problem.running}
    gone = problem.cluster.nodes[0].id
    hit = {
        t
        for t, h in before.items()
        if any(g.node == gone for r in h.roles for gpus in r.replicas for g in gpus)
    }
    looked = loop.look(events=(Event(EventKind.NODE_LOST, node=gone),))
    assert looked.decision.rule == "event"
    assert looked.decision.plan is not None
    after = {held.task: held for held in loop.problem.running}
    assert all(after[task] == before[task] for task in before if task not in hit)
    assert hit
    assert {move.task for move in looked.decision.moves} == hit
    used = {gpu for held in after.values() for role in held.roles for gpus in role.replicas for gpu in gpus}
    assert all(gpu.node != gone for gpu in used)


def test_room_is_made_for_a_broken_task_on_the_same_look() -> None:
    """What is left of its node is too small for it: another task shrinks for it at once."""
    heavy = replace(scaling("heavy", 100.0, 0.9, 4, weight=5.0), min_gpus=4, max_gpus=4)
    problem = running_best(world(8, [heavy, scaling("light", 100.0, 0.5, 8)]))
    loop = Loop(problem)
    loop.look()
    assert loop.gpus("light") == 4
    held = next(each for each in loop.problem.running if each.task == "heavy")
    lost = held.roles[0].replicas[0][0]
    looked = loop.look(events=(Event(EventKind.GPU_LOST, gpu=lost),))
    assert {move.task: move.action for move in looked.decision.moves}["light"] == "shrink"
    assert (loop.gpus("heavy"), loop.gpus("light")) == (4, 3)


def test_a_gpu_seen_off_the_bus_stays_out_until_it_is_said_to_be_back() -> None:
    """A029: the next look has no XID any more, and still the GPU is not used."""
    loop = Loop(two_tasks())
    loop.look()
    lost = GpuId("node0", 0)
    loop.look(events=(Event(EventKind.GPU_LOST, gpu=lost, detail="XID 79"),))
    loop.looks(3)
    used = {
        gpu for held in loop.problem.running for role in held.roles for gpus in role.replicas for gpu in gpus
    }
    assert lost not in used
    assert loop.state.lost == ((lost, "XID 79"),)
    loop.look(events=(Event(EventKind.GPU_RETURNED, gpu=lost),))
    assert loop.state.lost == ()


def test_inventory_tells_of_a_lost_gpu_without_telemetry() -> None:
    """Missing telemetry keeps everything but what cannot stay."""
    loop = Loop(two_tasks())
    loop.look()
    node = loop.problem.cluster.nodes[0]
    cluster = replace(
        loop.problem.cluster,
        nodes=(replace(node, gpus=node.gpus[1:]),),
        absent=(AbsentGpu(node.gpus[0].id, node.gpus[0].gpu_class, "drained"),),
    )
    loop.problem = replace(loop.problem, cluster=cluster)
    looked = loop.look(telemetry=False)
    assert looked.decision.rule == "event"
    assert [event.kind for event in looked.decision.events] == [EventKind.GPU_LOST]
    assert looked.decision.plan is not None


def test_an_arriving_task_starts_on_free_gpus_at_once() -> None:
    """Nobody is disturbed for it, and it does not wait for looks in a row."""
    task = replace(scaling("a", 100.0, 0.7, 8), max_gpus=4)
    loop = Loop(running_best(world(8, [task])))
    loop.look()
    loop.problem = replace(loop.problem, tasks=(*loop.problem.tasks, scaling("new", 50.0, 0.7, 8)))
    looked = loop.look()
    assert [(move.task, move.action) for move in looked.decision.moves] == [("new", "start")]
    assert looked.decision.rule == "event"


def test_a_high_priority_task_gets_gpus_of_others_on_its_first_look() -> None:
    """Dynamic insertion: others shrink for it within the caps, past their looks but not past their stay."""
    loop = Loop(running_best(world(8, [scaling("a", 100.0, 0.5, 8), scaling("b", 100.0, 0.5, 8)])))
    loop.look()
    loop.problem = replace(
        loop.problem, tasks=(*loop.problem.tasks, scaling("vip", 100.0, 0.9, 8, weight=20.0))
    )
    looked = loop.look()
    assert ("vip", "start") in [(move.task, move.action) for move in looked.decision.moves]
    assert loop.gpus("vip") > 0


def test_a_pause_is_honoured_and_what_it_frees_goes_to_who_waits() -> None:
    """A paused task leaves, with a reason, and a queued one takes its GPUs on the same look."""
    tasks = [replace(scaling(n, 100.0, 0.7, 8), min_gpus=8) for n in ("a", "b")]
    loop = Loop(running_best(world(8, tasks)), paused=frozenset())
    loop.look()
    runs = loop.problem.running[0].task
    loop.inputs["paused"] = frozenset({runs})
    looked = loop.look()
    actions = {move.task: move.action for move in looked.decision.moves}
    assert actions[runs] == "pause"
    assert looked.decision.plan is not None
    assert [(q.task, q.code) for q in looked.decision.plan.queued] == [(runs, "paused")]
    assert set(actions.values()) == {"pause", "start"}


def test_a_pause_waits_for_a_checkpoint() -> None:
    """A033: a task that trains is not stopped before its checkpoint is there; it is asked for first."""
    problem = training(two_tasks(), "a")
    loop = Loop(problem, paused=frozenset({"a"}))
    looked = loop.look(checkpoints=(CheckpointAge("a", None),))
    assert looked.decision.plan is None
    assert loop.gpus("a") > 0
    looked = loop.look(checkpoints=(CheckpointAge("a", 5.0),))
    assert [(move.task, move.action) for move in looked.decision.moves] == [("a", "pause")]


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
    loop.look(progress=(Progress("a", 1.0), Progress("b", 1.0)))
    assert loop.moves != []


def test_an_imbalanced_role_gets_no_more_gpus() -> None:
    """A038: one of eight GPUs busy is a queue of one request, no shortage of GPUs."""
    problem = shifted_world()
    loop = Loop(problem, EAGER)
    busy = (90.0, 0.0)
    looked = loop.look(loads=(Load("b", "train", gpus_busy=tuple(b / 100 for b in busy)),))
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


def test_missing_or_old_telemetry_keeps() -> None:
    """What nobody has seen is not acted on (A041)."""
    loop = Loop(shifted_world(), EAGER)
    assert loop.look(telemetry=False).decision.rule == "telemetry"
    old = look(LookInputs(loop.problem, EAGER, at(10), well(loop.problem, at(0))), LoopState())
    assert old.decision.rule == "telemetry"
    assert old.decision.plan is None


def test_telemetry_from_the_future_keeps() -> None:
    """A host whose clock is ahead says nothing of now; nor does a time that is no number."""
    loop = Loop(shifted_world(), EAGER)
    for until_s in (at(100).wall_s, float("inf"), float("nan")):
        window = msgspec.structs.replace(well(loop.problem, at(0)), until_s=until_s)
        looked = look(LookInputs(loop.problem, EAGER, at(0), window), LoopState())
        assert (looked.decision.rule, looked.decision.plan) == ("telemetry", None)


@pytest.mark.parametrize("age_s", [-3600.0, float("nan")])
def test_a_checkpoint_dated_after_now_is_no_fresh_one(age_s: float) -> None:
    """Its age is not known, so the task is not moved and a checkpoint is ordered."""
    loop = Loop(training(training(shifted_world(), "a"), "b"), EAGER)
    looked = loop.look(checkpoints=(CheckpointAge("a", age_s), CheckpointAge("b", age_s)))
    assert looked.decision.plan is None
    assert looked.decision.orders == ("checkpoint:a", "checkpoint:b")


def test_what_was_seen_before_a_move_says_nothing_of_the_new_form() -> None:
    """A file that nobody wrote anew counts neither steps nor memory that ran out twice."""
    problem = running_best(world(8, [replace(scaling("a", 100.0, 0.7, 8), max_gpus=2)]))
    options = tuple(replace(o, peak_mib=0.9 / o.gpus) for o in problem.tasks[0].roles[0].options)
    role = replace(problem.tasks[0].roles[0], options=options)
    problem = replace(problem, tasks=(replace(problem.tasks[0], roles=(role,), max_gpus=4),))
    loop = Loop(problem, EAGER)
    loop.look(telemetry=False)
    told = well(problem, at(1), events=(Event(EventKind.OUT_OF_MEMORY, task="a"),))
    plans = []
    for number in (1, 2, 3):
        looked = look(LookInputs(loop.problem, EAGER, at(number), told), loop.state)
        plan = looked.decision.plan
        plans.append(plan)
        loop.state = looked.kept if plan is None else looked.adopted
        if plan is not None:
            loop.problem = replace(loop.problem, running=held_by(plan))
    assert [plan is None for plan in plans] == [False, True, True]
    assert loop.gpus("a") == 4
    assert not loop.state.clock_for("a").progressed


@pytest.mark.parametrize("off_s", [-3600.0, 3600.0])
def test_a_clock_step_keeps_and_lives_on(off_s: float) -> None:
    """A078: the wall clock jumps an hour: nothing is changed on that look, and no stay gets longer."""
    loop = Loop(shifted_world(), policy(rule={"looks_up": 1, "looks_down": 1}))
    loop.look(telemetry=False)
    lived = loop.state.clock.loop_s
    looked = loop.look(now=Now(at(1).wall_s + off_s, at(1).boot_s, "boot"))
    assert looked.decision.rule == "clock"
    assert looked.decision.plan is None
    assert loop.state.clock.loop_s == pytest.approx(lived + 60.0)
    after = loop.look(now=Now(at(2).wall_s + off_s, at(2).boot_s, "boot"))
    assert after.decision.rule == "gain"


def test_a_reboot_counts_by_the_wall_clock() -> None:
    """The boot clock begins anew; the time between is taken from the wall, and never negative."""
    loop = Loop(two_tasks())
    loop.look()
    loop.look(now=Now(at(0).wall_s + 500.0, 3.0, "other"))
    assert loop.state.clock.loop_s == pytest.approx(500.0)
    looked = loop.look(now=Now(at(0).wall_s, 3.0, "third"))
    assert looked.decision.rule == "clock"


def test_an_event_during_a_clock_step_is_acted_on_at_the_next_look() -> None:
    """Nothing that happened is forgotten with the look that was skipped."""
    loop = Loop(running_best(world(8, [replace(scaling("a", 100.0, 0.7, 8), max_gpus=4)])))
    loop.look()
    loop.problem = replace(loop.problem, tasks=(*loop.problem.tasks, scaling("new", 50.0, 0.7, 8)))
    assert loop.look(now=Now(at(1).wall_s + 900.0, at(1).boot_s, "boot")).decision.rule == "clock"
    later = loop.look(now=Now(at(2).wall_s + 900.0, at(2).boot_s, "boot"))
    assert [(move.task, move.action) for move in later.decision.moves] == [("new", "start")]


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


def test_a_first_look_with_nothing_running_starts_what_waits() -> None:
    """A queue without a plan is started by the ordinary rule, on looks in a row."""
    loop = Loop(world(8, [scaling("a", 100.0, 0.7, 8)]))
    rules = [looked.decision.rule for looked in loop.looks(2)]
    assert rules == ["looks", "gain"]
    assert loop.gpus("a") > 0


def test_a_held_task_that_left_the_workload_is_no_trouble() -> None:
    """What is not in the problem any more is neither running nor waiting."""
    problem = two_tasks()
    assert isinstance(problem.running[0], HeldTask)
    gone = replace(problem, tasks=problem.tasks[:1], running=problem.running[:1])
    loop = Loop(gone)
    assert loop.look().decision.plan is None
    assert Window(0.0).seen == ()

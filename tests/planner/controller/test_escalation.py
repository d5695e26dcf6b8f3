"""What breaks, arrives or is asked for is acted on at the first look, and moves nothing else."""

from __future__ import annotations

from dataclasses import replace

from loops import (
    EAGER,
    Loop,
    policy,
    running_best,
    scaling,
    training,
    two_tasks,
    world,
)

from libra_plan.models.topology import AbsentGpu, GpuId
from libra_plan.planner.controller.state import Rung
from libra_plan.planner.problem import Arrangement, Coupling, CouplingKind
from libra_plan.planner.tables import table_task
from libra_plan.planner.telemetry.observations import (
    CheckpointAge,
    Event,
    EventKind,
)


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


def test_room_is_made_for_a_broken_task_within_the_caps_only() -> None:
    """Two others would have to shrink, and one may: the broken task waits."""
    heavy = replace(scaling("heavy", 100.0, 0.9, 4, weight=5.0), min_gpus=4, max_gpus=4)
    lights = [replace(scaling(name, 100.0, 0.5, 8), max_gpus=2) for name in ("light", "other")]
    problem = running_best(world(8, [heavy, *lights]))
    held = next(each for each in problem.running if each.task == "heavy")
    lost = tuple(Event(EventKind.GPU_LOST, gpu=gpus[0]) for gpus in held.roles[0].replicas[:2])
    gpus = []
    for most in (1, 2):
        loop = Loop(problem, policy(caps={"disturbed_tasks": most}))
        loop.look()
        loop.look(events=lost)
        gpus.append(loop.gpus("heavy"))
    assert gpus == [0, 4]


def test_tasks_are_moved_where_new_roles_bring_too_little() -> None:
    """Splitting its own GPUs anew brings a third of what the other task's GPUs would."""
    times = {count: 40.0 / count for count in range(1, 9)}

    def rl(rollout: float):
        roles = {"train": times, "rollout": {c: t * rollout for c, t in times.items()}}
        coupling = Coupling(CouplingKind.ASYNC, staleness=1)
        return table_task(
            "rl", 9.0, roles, coupling, arrangements=[Arrangement.SEPARATE], restart_s=30.0, min_gpus=2
        )

    other = scaling("other", 100.0, 0.2, 8)
    small = replace(rl(1.0), max_gpus=4), replace(other, min_gpus=4, max_gpus=4)
    running = running_best(world(8, small))
    looked = Loop(replace(running, tasks=(rl(3.0), other)), EAGER).look()
    considered = {each.rung: each.net for each in looked.decision.considered if each.verdict == "weighed"}
    assert 0.0 < considered[Rung.ROLES] < 0.8 * considered[Rung.TASKS]
    assert looked.decision.rung is Rung.TASKS
    assert {move.task for move in looked.decision.moves} == {"rl", "other"}

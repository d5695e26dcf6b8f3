"""What happened since the last look, and what of it is acted on at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loops import scaling, two_tasks, world

from libra_plan.models.topology import GpuId
from libra_plan.planner.controller.events import (
    events_since,
    lost_gpus,
    quota_key,
    told,
    urgent_tasks,
    without_gpus,
)
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.problem import Problem, Quota
from libra_plan.planner.telemetry.observations import Event, EventKind

NOBODY = frozenset[str]()


def remembered(problem: Problem, **more: object) -> LoopState:
    state = LoopState(
        looks=1,
        tasks=tuple(sorted((task.id, task.weight) for task in problem.tasks)),
        gpus=tuple(sorted(problem.cluster.gpus)),
        quotas=quota_key(problem),
    )
    return replace(state, **more)


def test_nothing_has_happened_at_the_first_look_or_in_an_unchanged_world() -> None:
    """At first everything is new; later only what differs from the look before is an event."""
    problem = two_tasks()
    assert events_since(problem, LoopState(), [], NOBODY) == ()
    assert events_since(problem, remembered(problem), [], NOBODY) == ()


def test_what_came_and_went_is_found() -> None:
    """Tasks, weights, GPUs, quotas, pauses and their ends: each gives its own event."""
    problem = two_tasks()
    before = remembered(problem, paused=("b",), gpus=(*sorted(problem.cluster.gpus), GpuId("gone", 0)))
    a, _ = problem.tasks
    changed = replace(
        problem,
        tasks=(replace(a, weight=3.0), scaling("new", 1.0, 1.0, 1)),
        running=problem.running[:1],
        quotas=(Quota("team", 1),),
    )
    found = events_since(changed, before, [], frozenset({"a"}))
    assert [(event.kind, event.task or event.gpu) for event in found] == [
        (EventKind.GPU_LOST, GpuId("gone", 0)),
        (EventKind.TASK_ARRIVED, "new"),
        (EventKind.TASK_FINISHED, "b"),
        (EventKind.PRIORITY_CHANGED, "a"),
        (EventKind.QUOTA_CHANGED, None),
        (EventKind.TASK_RESUMED, "b"),
        (EventKind.TASK_PAUSED, "a"),
    ]
    returned = events_since(problem, remembered(problem, gpus=()), [], NOBODY)
    assert {event.kind for event in returned} == {EventKind.GPU_RETURNED}


@pytest.mark.parametrize(
    ("event", "urgent"),
    [
        (Event(EventKind.PRIORITY_CHANGED, "a"), {"a", "b", "waits"}),
        (Event(EventKind.GPU_RETURNED), {"waits"}),
        (Event(EventKind.TASK_FINISHED, "x"), {"waits"}),
        (Event(EventKind.TASK_ARRIVED, "waits"), {"waits"}),
        (Event(EventKind.GPU_LOST), set()),
        (Event(EventKind.OUT_OF_MEMORY, "a"), set()),
    ],
)
def test_who_is_urgent(event: Event, urgent: set[str]) -> None:
    """Who arrived, or whose wait may be over; a lost GPU makes nobody urgent that it did not break."""
    problem = two_tasks()
    problem = replace(problem, tasks=(*problem.tasks, scaling("waits", 1.0, 1.0, 1)))
    assert urgent_tasks(problem, [event]) == urgent


def test_lost_gpus_are_remembered_until_they_are_said_to_be_back() -> None:
    """A029: by GPU or by node; one that the inventory leaves out is forgotten."""
    problem = world(4, [scaling("a", 1.0, 1.0, 1)], per_node=2)
    first, second = (node.id for node in problem.cluster.nodes)
    lost = lost_gpus(problem, LoopState(), [Event(EventKind.NODE_LOST, node=first, detail="power")])
    assert lost == {GpuId(first, 0): "power", GpuId(first, 1): "power"}
    state = LoopState(lost=tuple(lost.items()))
    assert lost_gpus(problem, state, []) == lost
    assert lost_gpus(problem, state, [Event(EventKind.GPU_RETURNED, gpu=GpuId(first, 0))]) == {
        GpuId(first, 1): "power"
    }
    left = without_gpus(problem, lost)
    assert set(left.cluster.gpus) == {GpuId(second, 0), GpuId(second, 1)}
    assert [(gpu.id, gpu.why) for gpu in left.cluster.absent] == [
        (GpuId(first, 0), "lost power"),
        (GpuId(first, 1), "lost power"),
    ]
    assert lost_gpus(left, state, []) == {}


def test_an_event_in_words() -> None:
    """What `history` and the reasons of decisions print."""
    assert told(Event(EventKind.GPU_LOST, gpu=GpuId("n", 3), detail="XID 79")) == "gpu-lost n:3 (XID 79)"
    assert told(Event(EventKind.QUOTA_CHANGED)) == "quota-changed"

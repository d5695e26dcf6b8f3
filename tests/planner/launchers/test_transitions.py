"""The way from one manifest to the next never gives a GPU to two tasks."""

from __future__ import annotations

import plans
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.planner.launchers.check import check_manifest
from libra_plan.planner.launchers.transitions import Holding, transitions_between

GPUS = [f"n0:{index}" for index in range(6)]


@st.composite
def hand_overs(draw):
    """Two divisions of six GPUs among four tasks; a task may be new, go, stay or hold nothing."""
    owners = st.sampled_from([None, 0, 1, 2, 3])
    before, after = (draw(st.lists(owners, min_size=6, max_size=6)) for _ in range(2))
    holdings = []
    for task in range(4):
        sides = [
            frozenset(gpu for gpu, owner in zip(GPUS, side, strict=True) if owner == task)
            for side in (before, after)
        ]
        old, new = (side if side or draw(st.booleans()) else None for side in sides)
        if old is not None or new is not None:
            holdings.append(Holding(f"t{task}", old, new, old == new))
    return holdings


@given(hand_overs())
def test_no_gpu_ever_has_two_holders(holdings):
    """A031: shrink first, confirm, then grow, so that a cut between any two steps is safe."""
    held = {one.task: one.before or frozenset() for one in holdings}
    target = {one.task: one.after or frozenset() for one in holdings}
    seen = set()
    for step in transitions_between(holdings):
        assert set(step.after) <= seen
        seen.add(step.id)
        held[step.task] = frozenset() if step.action == "stop" else target[step.task]
        taken = [gpu for gpus in held.values() for gpu in gpus]
        assert len(taken) == len(set(taken))
    assert held == target


@given(hand_overs())
def test_steps_that_do_not_wait_for_each_other_may_run_in_any_order(holdings):
    """`after` alone must protect a GPU: a launcher may run what is ready at the same time."""
    steps = transitions_between(holdings)
    before = {one.task: one.before or frozenset() for one in holdings}
    after = {one.task: one.after or frozenset() for one in holdings}
    closure = {}
    for step in steps:
        closure[step.id] = set(step.after).union(*(closure[one] for one in step.after))
    for step in steps:
        taken = frozenset() if step.action == "stop" else after[step.task] - before[step.task]
        for other in steps:
            left = before[other.task] - (frozenset() if other.action == "stop" else after[other.task])
            if other.task != step.task and taken & left and other.action != "start":
                early_stop = f"stop:{other.task}"
                assert other.id in closure[step.id] or early_stop in closure[step.id]


def test_two_tasks_that_swap_are_told_apart_by_an_early_stop():
    """Neither can take the other's GPUs first; one must stop, wait and start again."""
    swap = [Holding("a", frozenset("1"), frozenset("2")), Holding("b", frozenset("2"), frozenset("1"))]
    steps = transitions_between(swap)
    assert [(step.id, step.after) for step in steps] == [
        ("stop:a", ()),
        ("move:b", ("stop:a",)),
        ("start:a", ("stop:a", "move:b")),
    ]


def test_a_task_grows_after_the_one_that_shrinks_for_it():
    """The step that takes GPUs names the step that frees them."""
    steps = transitions_between(
        [Holding("big", frozenset("1"), frozenset("12")), Holding("small", frozenset("23"), frozenset("3"))]
    )
    assert [(step.id, step.gpus_before, step.gpus_after) for step in steps] == [
        ("resize:small", 2, 1),
        ("resize:big", 1, 2),
    ]
    assert steps[1].after == ("resize:small",)


@given(hand_overs())
def test_every_hand_over_that_is_built_is_sound(holdings):
    """The checks, which know nothing of how steps are made, must find nothing to say."""
    where = plans.cluster(6)
    old, new = (
        [
            plans.running(one.task, [plans.role("train", [[gpu] for gpu in sorted(gpus)])])
            for one in holdings
            if (gpus := getattr(one, side))
        ]
        for side in ("before", "after")
    )
    first = plans.manifest_of(where, *old)
    second = plans.manifest_of(where, *new, parent=first)
    assert check_manifest(first) == []
    assert check_manifest(second, first) == []


def test_releases_are_not_held_up_by_growth():
    """A031: what frees GPUs goes before any growth that it does not itself wait for."""
    steps = transitions_between(
        [
            Holding("swap-1", frozenset("1"), frozenset("2")),
            Holding("swap-2", frozenset("2"), frozenset("1")),
            Holding("swap-3", frozenset("3"), frozenset("4")),
            Holding("swap-4", frozenset("4"), frozenset("3")),
            Holding("new", None, frozenset("5")),
        ]
    )
    assert [step.id for step in steps[:2]] == ["stop:swap-1", "stop:swap-3"]
    assert {step.id for step in steps if step.gpus_after > step.gpus_before} == {
        step.id for step in steps[-3:]
    }

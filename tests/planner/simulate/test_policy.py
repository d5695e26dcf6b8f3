"""What policies share: lengths that are known, parts of the cluster, placements that are given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_worlds import FixedPlacement, hold, make_seen, make_task, make_view, make_world

from libra_plan.planner.simulate.policy import (
    best_in,
    first_lengths,
    forecast_at,
    part_of,
    recent_lengths,
    shares,
    split,
)
from libra_plan.planner.simulate.world import world_cluster


@given(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=6), st.integers(6, 64))
def test_shares_use_every_gpu_and_leave_nobody_out(weights, gpus):
    """A GPU that no part has is lost to every static policy; a task without any would never run."""
    whole = world_cluster(make_world(make_task(), gpus=gpus))
    found = shares(whole, {str(number): weight for number, weight in enumerate(weights)})
    assert sum(found.values()) == len(whole.gpus)
    assert min(found.values()) >= 1
    heaviest = str(max(range(len(weights)), key=lambda number: weights[number]))
    assert found[heaviest] == max(found.values())
    parts = split(whole, found)
    assert {name: len(part) for name, part in parts.items()} == found
    assert len(frozenset.union(*parts.values())) == len(whole.gpus)


def test_a_part_without_gpus_has_no_plan():
    """All GPUs of a task may have failed: it waits, and nothing is solved."""
    world = make_world(make_task())
    whole = world_cluster(world)
    assert part_of(whole, []).nodes == ()
    assert best_in(lambda part: pytest.fail("nothing to solve"), whole, []) == ()


def test_lengths_are_those_of_the_start_then_of_the_last_steps():
    """Until a step is done nobody knows more than what the task was submitted with."""
    world = make_world(make_task(mean=800.0))
    assert recent_lengths(make_view(world, make_seen()))["rl"].value == 800.0
    seen = make_seen(means=[900.0] * 5 + [1000.0] * 5)
    assert recent_lengths(make_view(world, seen))["rl"].value == 1000.0
    assert first_lengths(make_view(world, seen))["rl"].value == 800.0
    beyond = make_seen(means=[7900.0] * 9)
    assert recent_lengths(make_view(world, beyond))["rl"].value == pytest.approx(0.48 * 8000)


def test_a_forecast_carries_a_steady_rise_on():
    """With two steps a minute, ten minutes ahead are twenty steps of two per cent each."""
    world = make_world(make_task(mean=500.0))
    seen = make_seen(means=[500.0 * 1.02**step for step in range(40)])
    view = make_view(world, seen, now_s=1200.0)
    ahead = forecast_at(view, 600.0)["rl"]
    assert ahead.value == pytest.approx(500.0 * 1.02**59, rel=0.1)
    assert ahead.low <= ahead.value <= ahead.high
    few = make_view(world, make_seen(means=[500.0, 510.0]), now_s=60.0)
    assert forecast_at(few, 600.0) == recent_lengths(few)


def test_given_placements_wait_for_their_gpus_and_their_task():
    """A placement on a GPU that failed would run on nothing."""
    world = make_world(make_task("a"), make_task("b"))
    placed = [hold(world, "a", rollout=[2, 1], train=[1]), hold(world, "b", rollout=[1], train=[1])]
    policy = FixedPlacement(*placed)
    assert policy.decide(make_view(world, make_seen("a"), make_seen("b"))) == tuple(placed)
    whole = world_cluster(world)
    working = part_of(whole, list(whole.gpus)[1:])
    assert policy.decide(make_view(world, make_seen("a"), make_seen("b"), cluster=working)) == (placed[1],)
    assert policy.decide(make_view(world, make_seen("a"))) == (placed[0],)
    assert placed[0].roles[0].mix, "two sizes of replicas are a mix"

"""Moves: what they wait for, what they cost, and that nothing is lost in them."""

import pytest
from sim_worlds import DECODE, TRAIN, FixedPlacement, Tools, hold, make_task, make_world

from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.world import Costs, Elastic

COSTS = Costs(decode=(DECODE,), train=TRAIN, sync_s=1.0, weights_gib=2.0, state_gib=10.0)
ELASTIC = Elastic(to_rollout_s=10.8, to_training_s=4.4, snapshot_s=3.6)
ASYNC = {"coupling": "async", "staleness": 1, "arrangements": ("separate",)}


class Swap(FixedPlacement):
    """Hold the first placement for half an hour, then the second."""

    def decide(self, view):
        return (self.placed[0 if view.now_s < 1800.0 else 1],)


def swapped(first, second, *, elastic, free=False, **more):
    """Run an hour with a change in the middle."""
    given = {**ASYNC, "costs": COSTS, "tools": Tools(mean_s=2.0, sigma=0.3, on_workers=False), "turns": 3}
    world = make_world(make_task(elastic=elastic, **{**given, **more}), free=False)
    roles = [hold(world, "rl", **each) for each in (first, second)]
    return run_world(world, Swap(*roles, moves_free=free), 0, keep_stages=True)


MORE_TRAINING = ({"rollout": [1] * 6, "train": [1]}, {"rollout": [1] * 4, "train": [1] * 3})


MORE_ROLLOUT = ({"rollout": [1] * 4, "train": [1] * 3}, {"rollout": [1] * 6, "train": [1]})


@pytest.mark.parametrize(("first", "second"), [MORE_TRAINING, MORE_ROLLOUT])
def test_a_shift_costs_what_the_world_says_and_a_restart_far_more(first, second):
    """Its seconds are those of the world's `elastic`; a task that is not elastic saves and loads."""
    shift = swapped(first, second, elastic=ELASTIC).changes[1]
    assert (shift.why, shift.gpus_before, shift.gpus_after) == ("shift", 7, 7)
    assert shift.start_s == pytest.approx(8.0 if len(first["train"]) == 1 else 10.8)
    restart = swapped(first, second, elastic=None).changes[1]
    assert restart.why == "move"
    assert restart.start_s > 20.0


def test_nothing_is_lost_in_a_shift_and_every_step_is_done_once():
    """Trajectories of a replica that leaves go on elsewhere: the same work, in the same order, to the end."""
    record = swapped(*MORE_TRAINING, elastic=ELASTIC)
    assert [step.step for step in record.steps] == list(range(len(record.steps)))
    stays = run_world(make_world(make_task(costs=COSTS, **ASYNC)), FixedPlacement(hold_all()), 0)
    assert {step.samples for step in record.steps} == {step.samples for step in stays.steps} == {64}
    assert sum(held.to_s - held.from_s for held in record.placements) == pytest.approx(
        3600.0 - record.changes[0].start_s, rel=1e-3
    )


def hold_all():
    """Hold a plain placement."""
    world = make_world(make_task(costs=COSTS, **ASYNC))
    return hold(world, "rl", rollout=[1] * 6, train=[1])


def test_the_ablation_without_it_pays_the_restart():
    """`ours-no-elastic` compares the same policy without these moves, so the engine must not grant them."""

    class Stiff(Swap):
        elastic = False

    world = make_world(make_task(elastic=ELASTIC, costs=COSTS, **ASYNC), free=False)
    roles = [hold(world, "rl", **each) for each in MORE_TRAINING]
    record = run_world(world, Stiff(*roles, moves_free=False), 0)
    assert [change.why for change in record.changes] == ["start", "move"]


def test_pictures_count_replicas_that_stay_once():
    """A change settles what replicas have used; what looks note must grow to the total, and never beyond."""
    record = swapped(*MORE_TRAINING, elastic=ELASTIC)
    seen = [each.busy_gpu_s for each in record.rollouts]
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(record.busy_gpu_s["rl", "rollout"])


def test_a_move_waits_for_the_step_and_costs_what_was_measured():
    """The step under way is kept, and the start, save and load are within the measured spread."""
    world = make_world(make_task(costs=COSTS), free=False, hours=2.0)
    small, large = hold(world, "rl", rollout=[1], train=[1]), hold(world, "rl", rollout=[1, 1, 1], train=[1])
    record = run_world(world, Swap(small, large, moves_free=False), 0)
    begun, moved = record.changes
    assert (begun.why, moved.why) == ("start", "move")
    assert moved.at_s in {step.at_s for step in record.steps}
    assert moved.start_s == pytest.approx(7.4 + 10.0 / 0.757 + 12.0 / 3.93, rel=0.3)
    numbers = [step.step for step in record.steps]
    assert numbers == list(range(len(numbers)))

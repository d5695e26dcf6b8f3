"""Changes that leave replicas where they are: which they are, what they cost, and that nothing is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import DECODE, TRAIN, FixedPlacement, Tools, hold, make_task, make_world

from libra_plan.models.parallelism import Layout
from libra_plan.planner.problem import IncumbentRole, IncumbentTask
from libra_plan.planner.simulate.elastic import elastic_change
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.replica import Replica, Trajectory
from libra_plan.planner.simulate.world import Costs, Elastic, world_cluster

COSTS = Costs(decode=(DECODE,), train=TRAIN, sync_s=1.0, weights_gib=2.0, state_gib=10.0)
ELASTIC = Elastic(to_rollout_s=10.8, to_training_s=4.4, snapshot_s=3.6)
ASYNC = {"coupling": "async", "staleness": 1, "arrangements": ("separate",)}


def placed(rollout, train, sizes=(1, 2), first=0):
    """Hold so many replicas of both roles on the GPUs of two nodes, one after the other."""
    gpus, at, roles = list(world_cluster(make_world(make_task(), gpus=64)).gpus), first, []
    for role, count, size in (("rollout", rollout, sizes[0]), ("train", train, sizes[1])):
        replicas = tuple(tuple(gpus[at + size * n : at + size * (n + 1)]) for n in range(count))
        at += size * count
        roles.append(IncumbentRole(role, Layout(tp=size), replicas, role))
    return IncumbentTask("rl", tuple(roles))


@given(st.sampled_from([2, 4, 8]), st.integers(1, 4), st.integers(-2, 2))
@settings(max_examples=60)
def test_a_shift_keeps_all_replicas_but_those_that_change_over(rollout, train, units):
    """A plan made anew puts roles anywhere: dealt anew, only what must move moves."""
    before = placed(rollout + 4, train + 2)
    wanted = placed(rollout + 4 + 2 * units, train + 2 - units)
    change = elastic_change(before, wanted)
    assert change is not None
    assert len(change.joins) == (2 * units if units > 0 else -units)
    used = [gpu for role in change.wanted.roles for replica in role.replicas for gpu in replica]
    assert len(used) == len(set(used))
    held = [gpu for role in before.roles for replica in role.replicas for gpu in replica]
    assert set(used) == set(held)
    assert [len(r.replicas) for r in change.wanted.roles] == [len(r.replicas) for r in wanted.roles]


def test_other_layouts_other_gpus_and_shared_pools_are_no_elastic_change():
    """Where no replica could go on, the whole task must stop and pay for it."""
    before = placed(4, 2)
    assert elastic_change(before, placed(2, 2, sizes=(2, 2))) is None
    assert elastic_change(before, placed(4, 2, first=8)) is None
    pooled = IncumbentTask(
        "rl", tuple(IncumbentRole(r.role, r.layout, r.replicas, "pool") for r in before.roles)
    )
    assert elastic_change(before, pooled) is None


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


def test_a_trajectory_that_resumes_generates_only_what_is_left():
    """Its tokens come from prefill, so decoding the rest takes the rest of the steps."""
    first, second = (
        Replica(name, 1, DECODE.coefficients(), 8, 1e6, prefill_s_per_token=1e-4) for name in ("a", "b")
    )
    trajectory = Trajectory(0, 0, 100, 1000, 2)
    first.put(trajectory, 0.0)
    half = first.next_s() / 2.0
    [back] = first.leave(half)
    assert back is trajectory
    done = trajectory.ahead
    assert 200.0 < done < 300.0
    second.put(trajectory, half)
    at = half + 1e-4 * (100.0 + done)
    steps, context = 500.0 - done, 100.0 + done
    fit = DECODE.coefficients()
    seconds = steps * (fit.fixed_s + fit.per_sequence_s + fit.per_token_s * (context + steps / 2.0))
    assert second.next_s() == pytest.approx(at + seconds)
    second.step()
    assert (trajectory.done_turns, trajectory.context) == (1, 600.0)


def test_pictures_count_replicas_that_stay_once():
    """A change settles what replicas have used; what looks note must grow to the total, and never beyond."""
    record = swapped(*MORE_TRAINING, elastic=ELASTIC)
    seen = [each.busy_gpu_s for each in record.rollouts]
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(record.busy_gpu_s["rl", "rollout"])

"""Changes that leave replicas where they are: which they are, what they cost, and that nothing is lost."""

from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import DECODE, TRAIN, make_task, make_world

from libra_plan.models.parallelism import Layout
from libra_plan.planner.problem import IncumbentRole, IncumbentTask
from libra_plan.planner.simulate.elastic import elastic_change
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

"""Ablations: each leaves out its part, where that part is at work."""

from dataclasses import replace

import pytest
from sim_worlds import DECODE, TRAIN, make_task, make_world

from libra_plan.models.parallelism import Layout, RangedReplica
from libra_plan.models.quantities import exactly
from libra_plan.planner.problem import Arrangement
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.noisy_cost_model import NoisyCosts
from libra_plan.planner.simulate.policies import make_policy
from libra_plan.planner.simulate.policies.ours import loop_without, without_mixes, without_sharing
from libra_plan.planner.simulate.world import Costs, Drift, Elastic, world_cluster

COSTS = Costs(decode=(DECODE,), train=TRAIN, sync_s=1.0, wake_s=1.0, weights_gib=2.0, state_gib=10.0)


def drifting(**more):
    """Make a world in which the split of GPUs must follow lengths that grow tenfold within an hour."""
    drift = Drift(first_mean_tokens=300.0, last_mean_tokens=3000.0, steps=60, sigma=0.6, max_tokens=8000)
    costs = Costs(
        decode=(DECODE,),
        train=type(TRAIN)(gpus=1, per_token_s=8e-5, micro_batch_tokens=40_000),
        sync_s=1.0,
        weights_gib=2.0,
        state_gib=10.0,
    )
    task = make_task(
        coupling="async", staleness=1, arrangements=("separate",), responses=drift, costs=costs, **more
    )
    return make_world(task, free=False, hours=1.0, look_s=120.0)


def test_without_elastic_every_change_stops_the_task():
    """Where lengths drift both change the split: one while the task goes on, one by stopping it."""
    world = drifting(elastic=Elastic(to_rollout_s=5.0, to_training_s=2.0))
    why = {
        name: {change.why for change in run_world(world, make_policy(name), 0).changes[1:]}
        for name in ("ours", "ours-no-elastic")
    }
    assert "shift" in why["ours"]
    assert why["ours-no-elastic"] <= {"move"}


def test_without_mixed_no_option_has_replicas_of_two_sizes():
    """The solver must not even see them."""
    world = make_world(make_task())
    problem = NoisyCosts(world).problem(world_cluster(world), {"rl": exactly(800.0, "tokens")}, ["rl"])
    [task] = problem.tasks
    rollout = task.roles[0]
    mixed = replace(
        rollout.options[0],
        mix=(RangedReplica(Layout(tp=2), 0, 8, 1, 1.0), RangedReplica(Layout(tp=1), 8, 64, 1, 1.0)),
    )
    more = replace(task, roles=(replace(rollout, options=(*rollout.options, mixed)), *task.roles[1:]))
    assert without_mixes(replace(problem, tasks=(more,))) == problem


def test_without_sharing_roles_have_gpus_of_their_own():
    """A sync task that would take its GPUs in turn is split; one that cannot be split stays as it is."""
    world = make_world(make_task(costs=COSTS), make_task("turns", costs=COSTS, arrangements=("colocated",)))
    placed = run_world(world, make_policy("ours"), 0).placements
    assert all(len(held.pools) == 1 for held in placed)
    apart = run_world(world, make_policy("ours-no-sharing"), 0).placements
    assert {held.task: len(held.pools) for held in apart} == {"rl": 2, "turns": 1}
    problem = NoisyCosts(world).problem(
        world_cluster(world), {name: exactly(800.0, "tokens") for name in ("rl", "turns")}, ["rl", "turns"]
    )
    limited = without_sharing(problem).task_of
    assert limited["rl"].arrangements == {Arrangement.SEPARATE}
    assert limited["turns"] == problem.task_of["turns"]


@pytest.mark.parametrize("part", ["horizon", "forecast", "hysteresis", "elastic", "mixed", "sharing"])
def test_each_ablation_differs_from_the_loop(part):
    """Two names for one and the same policy would be a comparison of nothing."""
    whole = make_policy("ours").variant
    other = loop_without(part)
    assert other.name == f"ours-no-{part}"
    assert (other.rules, other.forecast, other.elastic, other.limits) != (
        whole.rules, whole.forecast, whole.elastic, whole.limits,
    )  # fmt: skip

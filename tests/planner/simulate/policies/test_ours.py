"""Ablations: each leaves out its part, where that part is at work."""

from dataclasses import replace

import pytest
from sim_worlds import DECODE, TRAIN, hold, make_seen, make_task, make_view, make_world

from libra_plan.models.parallelism import Layout, RangedReplica
from libra_plan.models.quantities import exactly
from libra_plan.planner.problem import Arrangement
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.noisy_cost_model import NoisyCosts
from libra_plan.planner.simulate.policies import make_policy
from libra_plan.planner.simulate.policies.ours import loop_without, records_of, without_mixes, without_sharing
from libra_plan.planner.simulate.policy import first_lengths
from libra_plan.planner.simulate.world import Costs, Drift, Elastic, world_cluster
from libra_plan.planner.telemetry.observe import observe

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


def test_records_say_what_counters_would():
    """The loop must come to its observations by the command's own way: from records."""
    world = make_world(make_task(costs=COSTS, arrangements=("separate",)))
    held = hold(world, "rl", rollout=[1, 1], train=[1])
    seen = make_seen(seen_s={"train": 12.0}, queue=0.25, since=5)
    view = make_view(world, seen, running=[held], now_s=900.0)
    rollout, train = records_of(view)
    assert (train.role, train.steps, train.length_s) == ("train", 5.0, 60.0)
    assert (rollout.steps, rollout.length_s, rollout.queues) == (0.0, 0.0, {"pressure": 0.25})
    found = observe([rollout, train], view.estimated.problem(view.cluster, first_lengths(view), ["rl"]), 1.0)
    assert [(each.role, each.seconds) for each in found.seen] == [("train", 12.0)]
    assert [(each.task, each.steps) for each in found.progress] == [("rl", 5.0)]
    assert [each.queue for each in found.loads] == [0.25]


def test_a_task_that_does_not_run_writes_no_records():
    """Nobody counts for a task that waits."""
    world = make_world(make_task(costs=COSTS))
    assert list(records_of(make_view(world, make_seen(queue=0.5)))) == []

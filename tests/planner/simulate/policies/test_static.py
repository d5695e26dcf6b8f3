"""Policies that decide once, and the clairvoyant."""

from dataclasses import replace
from statistics import mean

import msgspec
from sim_worlds import DECODE, TRAIN, make_seen, make_task, make_view, make_world

from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.policies import make_policy
from libra_plan.planner.simulate.policies.static import BestStatic, Clairvoyant, FixedSplit
from libra_plan.planner.simulate.world import Costs, Drift, world_cluster

COSTS = Costs(decode=(DECODE,), train=TRAIN, sync_s=1.0, weights_gib=2.0, state_gib=10.0)
STREAMING = {"coupling": "async", "staleness": 1, "arrangements": ("separate",), "costs": COSTS}


def two_tasks(**more):
    """Make two tasks that are alike."""
    return make_world(make_task("a", **STREAMING), make_task("b", **STREAMING), **more)


def busy_world():
    """Make a task that drifts beside one that does not."""
    drift = Drift(first_mean_tokens=500.0, last_mean_tokens=2500.0, steps=60, sigma=0.8, max_tokens=8000)
    return make_world(
        make_task("a", responses=drift, **STREAMING), make_task("b", **STREAMING), hours=0.5, free=False
    )


def gpus_of(placements):
    """Count the GPUs of each task."""
    return {held.task: sum(len(r) for role in held.roles for r in role.replicas) for held in placements}


def test_the_clairvoyant_is_not_behind_the_equal_split():
    """Who knows the costs and the future and moves for free must not lose to who knows nothing."""
    world = busy_world()
    done = {
        name: mean(len(run_world(world, make_policy(name), seed).steps) for seed in range(2))
        for name in ("equal", "clairvoyant")
    }
    assert done["clairvoyant"] > 0.97 * done["equal"]


def test_the_uniform_split_gives_every_role_as_many_gpus():
    """It is the split that teams set by hand: it may not be a planner's in disguise."""
    streaming = {"coupling": "async", "staleness": 1, "arrangements": ("separate",), "costs": COSTS}
    world = make_world(make_task("a", **streaming), make_task("b", **streaming), hours=0.2)
    uniform, seen = FixedSplit("uniform", weighted=False, even_roles=True), []

    class Spy:
        name, moves_free, elastic = "uniform", True, True

        def decide(self, view):
            seen.append(uniform.decide(view))
            return seen[-1]

    run_world(world, Spy(), 0)
    held = [[sum(map(len, role.replicas)) for role in task.roles] for task in seen[0]]
    assert held == [[2, 2], [2, 2]]


def test_parts_follow_weights_where_the_policy_says_so():
    """A task of three times the weight has three times the GPUs, and equally many without weights."""
    world = make_world(make_task("a", weight=3.0, **STREAMING), make_task("b", **STREAMING))
    view = make_view(world, make_seen("a"), make_seen("b"))
    assert gpus_of(FixedSplit("by-weight", weighted=True).decide(view)) == {"a": 6, "b": 2}
    assert gpus_of(FixedSplit("equal").decide(view)) == {"a": 4, "b": 4}


def test_a_task_is_planned_anew_only_in_its_own_part():
    """A GPU of a fails: b keeps what it has, and a never touches the GPUs of b."""
    world, policy = two_tasks(), FixedSplit("equal")
    seen = (make_seen("a"), make_seen("b"))
    first = {held.task: held for held in policy.decide(make_view(world, *seen))}
    (node,) = world_cluster(world).nodes
    lost = first["a"].roles[0].replicas[0][0]
    rest = replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.id != lost))
    cluster = replace(world_cluster(world), nodes=(rest,))
    then = {held.task: held for held in policy.decide(make_view(world, *seen, cluster=cluster))}
    assert then["b"] == first["b"]
    assert gpus_of([then["a"]]) == {"a": 3}


def test_rlinf_takes_the_smallest_replicas_only():
    """RLinf searches no tensor parallelism: a large replica that would be quicker is not taken."""
    wide = msgspec.structs.replace(DECODE, tp=2, fixed_s=1e-4, per_sequence_s=1e-6, per_token_s=1e-10)
    costs = msgspec.structs.replace(COSTS, decode=(DECODE, wide))
    world = make_world(make_task("rl", **{**STREAMING, "costs": costs}))
    view = make_view(world, make_seen())
    sizes = {}
    for name in ("equal", "rlinf"):
        (held,) = make_policy(name).decide(view)
        sizes[name] = {len(r) for role in held.roles if role.role == "rollout" for r in role.replicas}
    assert sizes == {"equal": {2}, "rlinf": {1}}


def test_the_best_static_plan_stays_while_tasks_and_gpus_do():
    """Lengths that drift do not move it; a task that leaves does."""
    world, policy = two_tasks(), BestStatic()
    first = policy.decide(make_view(world, make_seen("a"), make_seen("b")))
    longer = make_seen("a", means=[3000.0] * 9)
    assert policy.decide(make_view(world, longer, make_seen("b"))) is first
    assert set(gpus_of(policy.decide(make_view(world, make_seen("a"))))) == {"a"}


def test_the_clairvoyant_keeps_what_is_nearly_as_good():
    """Every move costs it the end of a step, so a gain below its least is not worth one."""
    world, policy = two_tasks(), Clairvoyant()
    seen = (make_seen("a"), make_seen("b"))
    first = policy.decide(make_view(world, *seen))
    assert policy.decide(make_view(world, *seen, running=first, now_s=300.0)) is None
    assert policy.decide(make_view(world, *seen, running=first, now_s=300.0, urgent=True)) is not None

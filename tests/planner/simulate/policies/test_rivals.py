"""Rules that others use: each acts when its own condition holds, and not before."""

import msgspec
import pytest
from sim_worlds import DECODE, TRAIN, make_seen, make_task, make_view, make_world

from libra_plan.planner.simulate.policies.rivals import (
    GavelLike,
    GreedyByQueue,
    LibraRule,
    RuleBased,
    SiaLike,
)
from libra_plan.planner.simulate.world import Costs

COSTS = Costs(decode=(DECODE,), train=TRAIN, sync_s=1.0, weights_gib=2.0, state_gib=10.0)
STREAMING = {"coupling": "async", "staleness": 1, "arrangements": ("separate",), "costs": COSTS}


def roles_of(placements, task="rl"):
    """Count the GPUs of each role of a task."""
    (held,) = [each for each in placements if each.task == task]
    return {role.role: sum(map(len, role.replicas)) for role in held.roles}


def test_rule_based_scales_after_three_looks_in_a_row():
    """A role that is busy once may be so by luck."""
    world, policy = make_world(make_task(**STREAMING)), RuleBased()
    first = roles_of(policy.decide(make_view(world, make_seen())))
    wanted = min(first, key=first.get)
    other = max(first, key=first.get)
    busy = make_seen(busy={wanted: 0.95, other: 0.3})
    for _ in range(2):
        assert roles_of(policy.decide(make_view(world, busy))) == first
    assert roles_of(policy.decide(make_view(world, make_seen(busy={wanted: 0.5, other: 0.5})))) == first
    for _ in range(2):
        assert roles_of(policy.decide(make_view(world, busy))) == first
    assert roles_of(policy.decide(make_view(world, busy)))[wanted] >= first[wanted] + 1


@pytest.mark.parametrize(("scale", "changes"), [(1.0, True), (1e-3, False)])
def test_libras_rule_looks_every_ten_steps_and_asks_fifteen_seconds_of_a_step(scale, changes):
    """Training that grows with the square of lengths wants GPUs; milliseconds do not pay for a change."""
    decode = msgspec.structs.replace(
        DECODE, fixed_s=1e-3 * scale, per_sequence_s=0.05 * scale, per_token_s=0.0
    )
    train = msgspec.structs.replace(TRAIN, per_token_s=1e-3 * scale, per_square_s=1e-5 * scale)
    costs = msgspec.structs.replace(COSTS, decode=(decode,), train=train)
    world, policy = make_world(make_task(**{**STREAMING, "costs": costs}), gpus=16), LibraRule()
    first = policy.decide(make_view(world, make_seen()))
    nine, ten = (make_seen(means=[3500.0] * count) for count in (9, 10))
    assert policy.decide(make_view(world, nine, running=first)) == first
    after = policy.decide(make_view(world, ten, running=first))
    assert (roles_of(after)["train"] > roles_of(first)["train"]) == changes


@pytest.mark.parametrize(("queue", "moves"), [(0.1, False), (1.0, True)])
def test_a_node_goes_to_the_longest_queue_when_it_is_half_a_step_longer(queue, moves):
    """Queues that hardly differ must not hand GPUs to and fro."""
    world = make_world(make_task("a", **STREAMING), make_task("b", **STREAMING), gpus=16)
    policy, seen = GreedyByQueue(), (make_seen("a", queue=queue), make_seen("b", queue=0.0))
    first = policy.decide(make_view(world, *seen))
    for _ in range(5):
        last = policy.decide(make_view(world, *seen))
    gain = sum(roles_of(last, "a").values()) - sum(roles_of(first, "a").values())
    assert gain == (4 if moves else 0)


def test_sia_charges_restarts_by_the_age_of_the_task():
    """A task that was just started is not moved; the objective counts what its restart takes of its life."""
    world = make_world(make_task("a", **STREAMING), make_task("b", **STREAMING), free=False)
    policy, seen = SiaLike(), (make_seen("a"), make_seen("b"))
    first = policy.decide(make_view(world, *seen))
    again = policy.decide(make_view(world, *seen, running=first, now_s=30.0))
    assert again == first


def test_gavel_plans_in_rounds_unless_something_happens():
    """Between two rounds nothing is planned, but a failure cannot wait for the next."""
    world, policy, seen = make_world(make_task(**STREAMING)), GavelLike(), make_seen()
    first = policy.decide(make_view(world, seen, urgent=True))
    assert first
    assert policy.decide(make_view(world, seen, running=first, now_s=300.0)) is None
    assert policy.decide(make_view(world, seen, running=first, now_s=300.0, urgent=True)) is not None
    assert policy.decide(make_view(world, seen, running=first, now_s=700.0)) is not None

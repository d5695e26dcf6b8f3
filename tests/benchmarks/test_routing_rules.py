"""Rules for routing: where each begins, when it moves, and that nothing else decides."""

import sys
from pathlib import Path

from sim_worlds import DECODE

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from routing_rules import Bucket, Routing, make_router
from routing_tree import OutcomeTree

from libra_plan.planner.simulate.replica import Replica, Trajectory

BUCKETS = (Bucket(tp=1, upto_tokens=1_000), Bucket(tp=4))
LONG, SHORT = "failure", "success"


def replica(tp, held=0, reserved=0.0):
    """Make a replica on which so much is held already."""
    made = Replica(f"tp{tp}", tp, DECODE.coefficients(), 8, 50_000.0 * tp, calls_outside=True)
    made.held, made.reserved = held, reserved
    return made


def trajectory(response=4_000, done=0, states=(), prompt_id=0, turns=4):
    """Make a trajectory of four turns of which some are done."""
    made = Trajectory(0, 0, 100, response, turns, (1.0,) * turns, 0, states, prompt_id)
    made.done_turns = done
    return made


def router(name, past=(), **more):
    """Make a router that has seen some trajectories end."""
    return make_router(Routing(router=name, buckets=BUCKETS, least_seen=1, **more), past)


PAST = [trajectory(response, states=(first,) * 4) for response, first in ((6_000, LONG), (400, SHORT)) * 3]


def test_the_emptiest_is_that_with_most_slots_and_room():
    """Replicas of unlike sizes hold unlike numbers: neither slots nor KV cache alone tells who is full."""
    rule, small, large = router("emptiest"), replica(1, held=2), replica(4, held=3)
    assert rule.first(trajectory(), [small, large]) is small
    small.reserved = 45_000.0
    assert rule.first(trajectory(), [small, large]) is large
    assert rule.following(trajectory(done=3), small, [small, large]) is small
    full = replica(1, held=8)
    assert rule.first(trajectory(), [full]) is None


def test_mlfq_moves_by_what_was_generated():
    """Below the bound nobody moves, beyond it everybody who finds room."""
    rule, small, large = router("mlfq"), replica(1), replica(4)
    assert rule.first(trajectory(), [large, small]) is small
    assert rule.following(trajectory(done=1), small, [small, large]) is small
    assert rule.following(trajectory(done=2), small, [small, large]) is large
    assert rule.following(trajectory(done=2), small, [small, replica(4, held=8)]) is small
    assert rule.following(trajectory(response=400, done=3), large, [small, large]) is large


def test_c_mlfq_moves_by_what_outcomes_tell():
    """After one failure the long one goes before it has generated more than a short one does."""
    rule, small, large = router("c-mlfq", PAST), replica(1), replica(4)
    failed, went = trajectory(done=1, states=(LONG,) * 4), trajectory(400, done=1, states=(SHORT,) * 4)
    assert rule.first(failed, [large, small]) is small
    assert rule.following(failed, small, [small, large]) is large
    assert rule.following(went, small, [small, large]) is small


def test_c_mlfq_stays_where_mean_and_percentile_fall_apart():
    """Mostly short, and a tenth and more long: the mean alone would keep it, the percentile alone move it."""
    past = [trajectory(response, states=(SHORT,) * 4) for response in [2_000] * 3 + [400] * 17]
    rule, small, large = router("c-mlfq", past), replica(1), replica(4)
    told = rule.tree.look("0", ())
    assert told.mean_tokens < BUCKETS[0].upto_tokens < told.p90_tokens
    assert rule.wanted(trajectory(states=(SHORT,) * 4)) is None
    assert rule.following(trajectory(done=1, states=(LONG,) * 4), small, [small, large]) is small


def test_a_known_prompt_may_begin_where_it_belongs():
    """Beginning in the smallest bucket loses the first turns of what is known to be long."""
    small, large = replica(1), replica(4)
    by_prompt = router("c-mlfq", PAST[:1], start="prompt")
    assert by_prompt.first(trajectory(), [small, large]) is large
    assert by_prompt.first(trajectory(prompt_id=1), [small, large]) is large, "all that is known is long"
    small.held = 4
    assert router("c-mlfq", PAST, start="emptiest").first(trajectory(), [small, large]) is large


def test_the_oracle_begins_with_the_longest_in_the_bucket_of_its_length():
    """A yardstick must use what it knows; without room it takes the next larger, then a smaller one."""
    rule, small, large = router("oracle"), replica(1), replica(4)
    long, short = trajectory(4_000), trajectory(500)
    assert rule.order([short, long]) == [long, short]
    assert (rule.first(long, [small, large]), rule.first(short, [small, large])) == (large, small)
    large.held = 8
    assert rule.first(long, [small, large]) is small


def test_a_router_counts_what_ended_where():
    """The published accuracy is a share of trajectories: those that ended in the bucket of their length."""
    rule = router("emptiest")
    for response, tp in ((4_000, 4), (4_000, 1), (500, 1), (500, 4)):
        rule.ended(trajectory(response), replica(tp))
    assert (rule.routed.ended, rule.routed.right) == (4, 2)
    assert rule.routed.tokens == 9_400


def test_a_router_learns_while_it_runs():
    """Trajectories that end are the only teacher it has."""
    rule = router("c-mlfq")
    assert rule.tree.look("0", ()) is None
    for each in PAST:
        rule.ended(each, replica(1))
    fresh = OutcomeTree(least_seen=1)
    assert fresh.look("0", ()) is None
    assert rule.tree.look("0", (LONG,)).mean_tokens == 4_500.0

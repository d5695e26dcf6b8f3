"""One replica: what it holds, what it gives back, and which one a trajectory begins on."""

import pytest
from sim_worlds import DECODE, Tools, make_task

from libra_plan.planner.simulate.replica import Dealer, Replica, Trajectory


def replica(name="a", slots=2, room=10_000.0):
    """Make an empty replica of one GPU."""
    return Replica(name, 1, DECODE.coefficients(), slots, room)


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


def test_admission_waits_for_a_slot_and_for_room():
    """An engine that takes more than fits would promise a speed that no GPU has."""
    one = replica(slots=8, room=2_500.0)
    for number in range(3):
        one.put(Trajectory(0, number, 100, 1_000, 1), 0.0)
    assert (one.held, one.reserved, len(one.queue)) == (2, 2_200.0, 1)
    assert one.step() is not None
    assert (one.held, len(one.queue)) == (2, 0)


def test_what_is_abandoned_begins_anew_in_the_order_of_the_work():
    """A failed GPU loses the KV cache: nothing of it may count as generated."""
    one = replica(slots=1)
    first, second = Trajectory(0, 0, 100, 1_000, 2), Trajectory(0, 1, 100, 1_000, 2)
    for each in (first, second):
        one.put(each, 0.0)
    one.step()
    assert first.done_turns == 1
    assert one.abandon() == [first, second]
    assert (first.done_turns, first.context, one.held, one.reserved) == (0, 100.0, 0, 0.0)


def test_the_next_replica_is_the_emptiest_one_with_room():
    """A task whose replicas are all full must wait, and not overfill one."""
    dealer, small, large = Dealer(make_task()), replica(slots=2), replica("b", slots=8)
    small.held, large.held = 1, 2
    assert dealer.first(Trajectory(0, 0, 100, 100, 1), [small, large]) is large
    large.held = 8
    small.held = 2
    assert dealer.first(Trajectory(0, 0, 100, 100, 1), [small, large]) is None
    assert not dealer.in_order([small, large])
    assert dealer.in_order([small, replica("c", slots=2)])


def test_only_tools_on_workers_leave_the_replica():
    """Calls that need no worker are waited for inside, without an entry in the heap of the engine."""
    assert not Dealer(make_task()).calls_outside
    assert not Dealer(make_task(tools=Tools(mean_s=1.0, on_workers=False))).calls_outside
    assert Dealer(make_task(tools=Tools(mean_s=1.0))).calls_outside

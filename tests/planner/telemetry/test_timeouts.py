"""A call that never comes back costs one thread and nothing else."""

from __future__ import annotations

import threading

import pytest
from live import wait_for

from libra_plan.planner.telemetry.timeouts import TimedCalls


@pytest.fixture
def guard(request):
    made = TimedCalls(request.node.name)
    yield made
    made.close()


def test_an_answer_and_an_error_come_back(guard):
    """Whoever waits decides what an error means, so it must reach them whole."""
    assert guard.ask(lambda: 7, 30).value == 7
    answer = guard.ask(lambda: 1 / 0, 30)
    assert answer.value is None
    assert isinstance(answer.error, ZeroDivisionError)


def test_a_hung_call_is_given_up_and_never_made_again_before_it_returns(guard, request):
    """A047: stuck calls must not pile up, and the first good answer after them must count again."""
    release, made = threading.Event(), []

    def hang():
        made.append(1)
        release.wait(30)

    assert guard.ask(hang, 0.01) is None
    wait_for(lambda: made)  # its thread may not have had its turn yet
    assert [guard.ask(hang, 0.01) for _ in range(20)] == [None] * 20
    own = [thread for thread in threading.enumerate() if thread.name == request.node.name]
    assert (len(made), len(own)) == (1, 1)
    release.set()
    wait_for(lambda: not guard.stuck)
    assert guard.ask(lambda: "well", 30).value == "well"


def test_a_late_answer_is_not_taken_for_the_next_ones(guard):
    """What a call says after its time was up is about the past."""
    release = threading.Event()
    assert guard.ask(lambda: release.wait(30) and "old", 0.01) is None
    release.set()
    wait_for(lambda: not guard.stuck)
    assert guard.ask(lambda: "new", 30).value == "new"


def test_the_thread_does_not_hold_the_program():
    """A call in the driver that never returns must not keep the monitor from ending."""
    guard, release = TimedCalls("hung"), threading.Event()
    guard.ask(lambda: release.wait(30), 0.01)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "hung")
    release.set()
    guard.close()

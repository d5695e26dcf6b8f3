"""The loop of `watch`: when it looks, what ends it, and what it tells of its health."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request

import pytest

from libra_plan.errors import InputError, LockedError, StateError
from libra_plan.planner.controller.hysteresis import ReplanPolicy
from libra_plan.planner.controller.replan import Replanned
from libra_plan.planner.controller.state import Decision, Rung
from libra_plan.planner.controller.watch import Health, Signals, serve, watch_loop

POLICY = ReplanPolicy(every_s=10.0)


def done(number: int, outcome: str = "kept") -> Replanned:
    return Replanned(number, Decision(Rung.KEEP, "best", "why"), outcome, 3, 60.0)


class Script:
    """Takes looks as they are written down, on a clock that sleeping moves."""

    def __init__(self, *looks: object) -> None:
        self.looks, self.taken, self.slept, self.now = list(looks), [], [], 0.0
        self.reload = self.ended = False
        self.notes: list[str] = []

    def once(self, policy: ReplanPolicy) -> Replanned:
        self.taken.append(policy.every_s)
        self.now += 1.0
        what = self.looks.pop(0)
        if isinstance(what, Exception):
            raise what
        return what

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def run(self, health: Health, read=lambda: POLICY) -> None:
        watch_loop(
            self.once, POLICY, read, health, self, len(self.looks), lambda: self.now, self.notes.append
        )


def test_looks_come_every_so_many_seconds_from_the_beginning_of_the_last() -> None:
    """A look of one second is followed by nine of sleep; after the last look nobody sleeps."""
    script, health = Script(done(1), done(2), done(3)), Health()
    script.run(health)
    assert script.slept == [9.0, 9.0]
    assert (health.last_look, health.generation, health.looks) == (3, 3, {("keep", "kept"): 3})


def test_a_look_that_fails_is_told_and_tried_again() -> None:
    """A lock that another run holds, or bad input in the middle, is no end; the health says so meanwhile."""
    script, health = Script(LockedError("held"), done(1), InputError("wrong"), done(2)), Health()
    script.run(health)
    assert script.notes == ["held", "this look failed: wrong"]
    assert (health.failures, health.last_failed, health.last_look) == (2, None, 2)


def test_bad_input_at_the_first_look_ends_it() -> None:
    """Nothing will mend it but its user."""
    with pytest.raises(StateError, match="damaged"):
        Script(StateError("damaged"), done(1)).run(Health())


def test_the_policy_is_read_anew_when_asked_and_a_wrong_one_is_left() -> None:
    """SIGHUP after an edit; a slip in the file must not stop the loop."""
    script = Script(done(1))
    script.reload = True
    script.run(Health(), lambda: ReplanPolicy(every_s=5.0))
    assert (script.taken, script.notes) == ([5.0], ["the policy was read anew"])

    def wrong() -> ReplanPolicy:
        raise InputError("gain_upp is no key")

    script = Script(done(1))
    script.reload = True
    script.run(Health(), wrong)
    assert script.taken == [10.0]
    assert script.notes == ["the policy stays as it was: gain_upp is no key"]


def test_health_is_well_until_a_look_fails_or_is_overdue() -> None:
    """Before the first look it is well; three intervals and a minute later it is not."""
    health = Health(every_s=10.0)
    assert health.healthy(1e9)[0]
    health.took(done(7), 0.5, 100.0)
    assert health.healthy(190.0) == (True, "look 7")
    assert health.healthy(191.0) == (False, "the last look was 91 s ago")
    health.failed("no room")
    assert health.healthy(100.0) == (False, "no room")


def test_signals_wake_and_end() -> None:
    """SIGHUP asks for the policy, SIGTERM for the end; afterwards the old handlers are back."""
    before = signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        signal.raise_signal(signal.SIGHUP)
        assert (signals.reload, signals.ended) == (True, False)
        signals.sleep(60.0)  # returns at once
        signal.raise_signal(signal.SIGTERM)
        assert signals.ended
    assert signal.getsignal(signal.SIGTERM) is before


def test_metrics_and_health_are_served() -> None:
    """Counters by decision and outcome; /healthz answers 503 once a look has failed."""
    health, notes = Health(), list[str]()
    health.took(done(7, "applied"), 0.5, 1e18)
    with serve("127.0.0.1", 0, health, notes.append) as port:
        page = f"http://127.0.0.1:{port}"
        assert notes == [f"serving {page}/metrics and /healthz"]
        with urllib.request.urlopen(f"{page}/metrics") as answer:
            text = answer.read().decode()
        assert 'libra_plan_looks_total{decision="keep",outcome="applied"} 1.0' in text
        assert "libra_plan_generation 3.0" in text
        assert "libra_plan_healthy 1.0" in text
        with urllib.request.urlopen(f"{page}/healthz") as answer:
            assert answer.read() == b"look 7\n"
        health.failed("no room")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{page}/healthz")
        assert refused.value.code == 503
        refused.value.close()
        with pytest.raises(InputError, match="cannot serve there"), serve("127.0.0.1", port, health):
            pass

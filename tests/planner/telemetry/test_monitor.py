"""The loop: looks on a grid, however long a look takes and whatever the clock does."""

from __future__ import annotations

from fake_nvml import Hands
from telemetry_cases import clocks_of, gpu, sample

from libra_plan.planner.telemetry.monitor import ClockWatch, look_until


class Scripted:
    """A source whose looks take as long as a test says."""

    name = "scripted"

    def __init__(self, hands, takes=(), live=True, ends=None):
        self.hands, self.takes, self.live, self.ends = hands, list(takes), live, ends
        self.at = []

    def read(self):
        if self.ends is not None and len(self.at) == self.ends:
            return None
        self.at.append(self.hands.monotonic_s)
        self.hands.pass_s(self.takes.pop(0) if self.takes else 0.0)
        return (sample(self.hands.monotonic_s, gpu()),)

    def close(self):
        pass


def go(hands, source, interval_s=1.0, for_s=None, ends_at=None, takers=()):
    def wait(seconds):
        hands.pass_s(seconds)
        return ends_at is not None and hands.monotonic_s >= ends_at

    return look_until(source, takers, interval_s, for_s, wait, clocks_of(hands))


def test_looks_lie_on_a_grid_and_missed_ones_are_not_made_up_for():
    """A look that hung for 3.5 s must not be followed by a burst."""
    hands = Hands(monotonic_s=0.0)
    source = Scripted(hands, [0.1, 3.5, 0.1])
    assert go(hands, source, for_s=6.0) == 4
    assert source.at == [0.0, 1.0, 5.0, 6.0]


def test_it_ends_when_it_is_told_and_when_the_source_does():
    """Ctrl-C, --for and the end of a recording are all good ends."""
    hands = Hands(monotonic_s=0.0)
    assert go(hands, Scripted(hands), ends_at=3.0) == 3
    hands = Hands(monotonic_s=0.0)
    assert go(hands, Scripted(hands, ends=5)) == 5
    hands = Hands(monotonic_s=0.0)
    assert go(hands, Scripted(hands), for_s=0.0) == 1


def test_a_recording_is_not_waited_for():
    """A day's recording should not take a day to look through."""
    hands = Hands(monotonic_s=0.0)
    assert go(hands, Scripted(hands, live=False, ends=1000)) == 1000
    assert hands.monotonic_s == 0.0


def test_a_jump_of_the_clock_is_a_fault_of_the_sample_and_moves_no_look():
    """A078: durations by the monotonic clock; the jump itself is told once."""
    hands, seen = Hands(monotonic_s=0.0), []

    def take(samples):
        seen.extend(samples)
        if len(seen) == 2:
            hands.utc_s -= 3600

    source = Scripted(hands)
    go(hands, source, for_s=3.0, takers=[take])
    assert source.at == [0.0, 1.0, 2.0, 3.0]
    assert [each.faults for each in seen] == [(), (), ("the clock jumped by -3600.0 s",), ()]


def test_a_clock_that_is_slewed_is_no_jump():
    """NTP corrects milliseconds all day."""
    hands = Hands()
    watch = ClockWatch(clocks_of(hands))
    hands.utc_s += 0.5
    assert watch.jump() is None

"""Counters with a clock that tests move by hand, and what they wrote."""

from __future__ import annotations

import json

import libra_plan
from libra_plan.planner.telemetry.work_windows import find_recordings, read_windows


class Clock:
    """A clock that goes as it is told to, and a wall clock beside it."""

    def __init__(self):
        self.now_s = 100.0
        self.wall_s = 1_700_000_000.0

    def __call__(self):
        return self.now_s

    def wait(self, seconds):
        self.now_s += seconds
        self.wall_s += seconds


def make(folder, clock, *, role="actor", window_s=10.0, **more):
    return libra_plan.counter(
        folder,
        task="agent",
        role=role,
        window_s=window_s,
        clock=clock,
        utc=lambda: clock.wall_s,
        environment={},
        **more,
    )


def lines(folder):
    return [json.loads(line) for path in find_recordings([folder]) for line in path.read_text().splitlines()]


def windows(folder):
    return list(read_windows(find_recordings([folder]), []))

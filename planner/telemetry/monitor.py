"""The loop of `monitor`: a look an interval, each handed to whoever takes samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from libra_plan.planner.telemetry.sample import Sample
from libra_plan.planner.telemetry.sources import Clocks, Source

__all__ = ["ClockWatch", "Taker", "Wait", "run"]

Taker = Callable[[Sequence[Sample]], object]
Wait = Callable[[float], bool]  # waits so many seconds; True: it is time to end

_JUMP_S = 2.0


class ClockWatch:
    """Sees the time of day jump against the monotonic clock."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._offset_s = self._now()

    def jump(self) -> str | None:
        """Say that the clock has jumped since the last call."""
        offset_s = self._now()
        by_s, self._offset_s = offset_s - self._offset_s, offset_s
        return None if abs(by_s) < _JUMP_S else f"the clock jumped by {by_s:+.1f} s"

    def _now(self) -> float:
        return self._clocks.utc_s() - self._clocks.monotonic_s()


def run(
    source: Source,
    takers: Sequence[Taker],
    interval_s: float,
    for_s: float | None,
    wait: Wait,
    clocks: Clocks,
) -> int:
    """Look until the source ends, `for_s` seconds are over or `wait` says so; give the number of looks.

    Looks lie on a grid of `interval_s`; one that took longer costs the looks it ran over, and they
    are not made up for in a burst. A source that is not live is read as fast as it can be.
    """
    watch = ClockWatch(clocks)
    begin_s = clocks.monotonic_s()
    looks = place = 0
    while (samples := source.read()) is not None:
        looks += 1
        jump = watch.jump() if source.live else None
        if jump is not None:
            samples = tuple(msgspec.structs.replace(each, faults=(*each.faults, jump)) for each in samples)
        for take in takers:
            take(samples)
        left_s = 0.0
        if source.live:
            passed_s = clocks.monotonic_s() - begin_s
            place = max(place + 1, math.ceil(passed_s / interval_s))
            left_s = max(0.0, place * interval_s - passed_s)
            if for_s is not None and place * interval_s > for_s:
                break
        if wait(left_s):
            break
    return looks

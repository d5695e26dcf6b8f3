"""From counters that only grow to rates, whatever happens to counter and clock."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Rates"]


class Rates:
    """Remember a set of counters and give what they grew by per second of the monotonic clock.

    A counter that fell has begun anew (driver reloaded, counter wrapped): what it grew by is unknown,
    so that interval has no rate. So has the first, one without duration, and one with an unknown end.
    """

    def __init__(self) -> None:
        self._last: Mapping[str, int | None] = {}
        self._last_s: float | None = None

    def next(self, counters: Mapping[str, int | None], at_s: float) -> dict[str, float | None]:
        """Give the mean rate of each counter since the last call."""
        elapsed_s = 0.0 if self._last_s is None else at_s - self._last_s
        rates = {name: _rate(self._last.get(name), now, elapsed_s) for name, now in counters.items()}
        self._last, self._last_s = dict(counters), at_s
        return rates


def _rate(before: int | None, now: int | None, elapsed_s: float) -> float | None:
    if before is None or now is None or now < before or elapsed_s <= 0:
        return None
    return (now - before) / elapsed_s

"""Rates from counters that fall and clocks that stand still."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from libra_plan.planner.telemetry.rates import Rates


@given(st.lists(st.tuples(st.integers(0, 10**15), st.floats(0, 100)), min_size=1, max_size=50))
def test_no_rate_is_negative_or_without_duration(steps):
    """Counters fall and clocks stand still; a rate is told only where both went on."""
    rates, at_s, before = Rates(), 0.0, None
    for value, gap_s in steps:
        at_s += gap_s
        rate = rates.next({"bytes": value}, at_s)["bytes"]
        known = before is not None and value >= before[0] and at_s > before[1]
        assert (rate is not None) == known
        if known:
            assert math.isclose(rate, (value - before[0]) / (at_s - before[1]))
        before = value, at_s


def test_a_rate_needs_both_ends():
    """A counter that was unknown in between gives no rate over a time nobody knows."""
    rates = Rates()
    assert [rates.next({"b": each}, float(at))["b"] for at, each in enumerate((0, None, 10, 12))] == [
        None,
        None,
        None,
        2.0,
    ]

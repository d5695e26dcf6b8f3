"""Growth is told from noise."""

from __future__ import annotations

import numpy as np
import pytest

from libra_plan.planner.doctor import Thresholds
from libra_plan.planner.doctor.trends import growth, standing_share

AT = np.arange(0.0, 3600.0, 10.0)
NOISE = np.random.default_rng(1).normal(0.0, 3.0, len(AT))


def test_a_steady_growth_has_its_slope():
    """Ten in an hour, under noise of three."""
    trend = growth(AT, AT / 360 * 10 + NOISE, Thresholds(), 10.0)
    assert trend.per_s == pytest.approx(100 / 3600, rel=0.1)


@pytest.mark.parametrize(
    "values",
    [
        NOISE,
        -AT,
        np.minimum(AT, 900.0),
        np.where(AT > 1800, 50.0, 0.0),
        np.full(len(AT), np.nan),
        20 * np.sin(AT / 300),
    ],
)
def test_noise_decline_steps_and_waves_are_no_growth(values):
    """Each of them has a last value above some earlier one."""
    assert growth(AT, values, Thresholds(), 10.0) is None


def test_unknown_values_are_left_out():
    """Half of the readings are enough."""
    values = np.where(AT % 20 == 0, AT / 360 * 10, np.nan)
    assert growth(AT, values, Thresholds(), 10.0).per_s == pytest.approx(100 / 3600, rel=0.05)


def test_a_queue_is_standing_by_the_looks_that_found_something():
    """Unknown looks do not count, and no look is no queue."""
    assert standing_share(np.array([1.0, 0.0, np.nan, 2.0, 3.0])) == 0.75
    assert standing_share(np.array([np.nan])) == 0.0

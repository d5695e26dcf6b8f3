"""Following how far a cost model is off: what is known, how well, and when it changed."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.errors import RefusedError
from libra_plan.models.corrections import Correction, with_observation


def follow(ratios, state=None):
    state = state or Correction()
    for ratio in ratios:
        state = with_observation(state, ratio, 1.0)
    return state


def noisy(seed, number, factor=1.0, spread=0.05, alike=0.0):
    rng, error = random.Random(seed), 0.0
    for _ in range(number):
        error = alike * error + math.sqrt(1 - alike**2) * rng.gauss(0.0, spread)
        yield factor * math.exp(error)


def test_few_observations_correct_nothing():
    """Seven slow steps may be a warm-up."""
    state = follow([2.0] * 7)
    assert (state.known, state.factor, state.bounds) == (False, 1.0, (1.0, 1.0))
    assert follow([2.0], state).factor == pytest.approx(2.0)


def test_the_bounds_hold_nine_times_in_ten():
    """An error bar that does not hold is worse than none; also where steps resemble each other."""
    for alike in (0.0, 0.5):
        inside = 0
        for seed in range(200):
            low, high = follow(noisy(seed, 200, 1.2, alike=alike)).bounds
            inside += low <= 1.2 <= high
        assert 0.8 <= inside / 200 <= 0.97, alike


def test_a_change_of_a_tenth_starts_anew_soon():
    """Old steps of another law must not linger: the factor is that of the steps since the change."""
    for seed in range(20):
        state = follow(noisy(seed, 200))
        state = follow(noisy(seed + 100, 40, 1.1), state)
        assert state.changes == 1
        assert state.factor == pytest.approx(1.1, rel=0.04)
        assert state.observations <= 60


def test_a_steady_law_raises_no_alarm():
    """10,000 independent steps of one law are one law."""
    assert [follow(noisy(seed, 2000)).changes for seed in range(5)] == [0] * 5


@given(st.floats(0.2, 5.0), st.floats(0.01, 1e4), st.integers(8, 100))
def test_only_the_ratio_matters(ratio, predicted_s, number):
    """Milliseconds and hours are corrected alike, and a steady ratio is found exactly."""
    state = Correction()
    for _ in range(number):
        state = with_observation(state, ratio * predicted_s, predicted_s)
    assert state.factor == pytest.approx(ratio)
    low, high = state.bounds
    assert low <= state.factor <= high
    assert high / low < 1.02


@pytest.mark.parametrize(("observed_s", "predicted_s"), [(1e300, 1e-300), (1.0, 1001.0), (float("inf"), 1.0)])
def test_an_observation_a_thousand_times_off_is_refused(observed_s, predicted_s):
    """It would drown every other one, or become no number at all."""
    with pytest.raises(RefusedError, match="factor of 1000"):
        with_observation(Correction(), observed_s, predicted_s)

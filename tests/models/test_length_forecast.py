"""Lengths some steps ahead: the trend, its uncertainty, and laws moved to it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.errors import WorkloadError
from libra_plan.models.length_forecast import forecast_lengths, law_mean_tokens, scaled
from libra_plan.models.lengths import sample_lengths
from libra_plan.models.quantities import Origin
from libra_plan.profiles.schema import Fixed, Histogram, LogNormal, Trace


def drifting(steps, growth, noise, seed=0):
    rng = np.random.default_rng(seed)
    return [1000 * math.exp(growth * t + noise * e) for t, e in enumerate(rng.normal(size=steps))]


def test_steady_growth_is_carried_on():
    """Responses that grow 2 % a step without noise are foretold within a few percent."""
    forecast = forecast_lengths(drifting(40, 0.02, 0.0))
    for ahead in (1, 5, 10):
        assert forecast.at(ahead).value == pytest.approx(1000 * math.exp(0.02 * (39 + ahead)), rel=0.05)
    assert forecast.at(1).origin is Origin.EXTRAPOLATED
    assert forecast.at(1).unit == "tokens"


def test_noise_without_trend_stays_near_the_level():
    """A trend read out of noise would move GPUs for nothing."""
    for seed in range(10):
        forecast = forecast_lengths(drifting(40, 0.0, 0.1, seed))
        assert 850 < forecast.at(10).value < 1180


@pytest.mark.parametrize("ahead", [1, 4, 8])
def test_intervals_hold_about_as_often_as_they_say(ahead):
    """90 % intervals, tried on 200 drifting histories, hold the truth in at least 80 % of them."""
    held = 0
    for seed in range(200):
        truth = drifting(32 + ahead, 0.01, 0.08, seed)
        found = forecast_lengths(truth[:32]).at(ahead)
        held += found.low <= truth[31 + ahead] <= found.high
    assert held >= 160


def test_uncertainty_grows_with_the_horizon():
    """Ten steps ahead is less sure than one."""
    wider = 0
    for seed in range(20):
        forecast = forecast_lengths(np.cumsum(np.random.default_rng(seed).normal(size=40)) * 20 + 2000)
        near, far = forecast.at(1), forecast.at(20)
        wider += far.high / far.value > near.high / near.value
    assert wider >= 19


def test_what_a_history_cannot_tell_is_refused():
    """Five steps are no trend, and no history reaches further than its own length."""
    with pytest.raises(WorkloadError, match="at least 6"):
        forecast_lengths([1000.0] * 5)
    with pytest.raises(WorkloadError, match="above 0"):
        forecast_lengths([1000.0] * 5 + [0.0])
    assert forecast_lengths([1000.0] * 6).at(6).value == pytest.approx(1000.0)
    for ahead in (-1, 7):
        with pytest.raises(WorkloadError, match="0 to 6"):
            forecast_lengths([1000.0] * 6).at(ahead)


laws = st.one_of(
    st.builds(Fixed, tokens=st.integers(500, 5000)),
    st.builds(
        LogNormal, median_tokens=st.floats(500, 4000), sigma=st.floats(0.0, 1.2), max_tokens=st.just(32_000)
    ),
    st.just(Histogram(edges_tokens=(100, 400, 500, 4000), counts=(5, 0, 2))),
    st.just(Trace(file="t")),
)
TRACES = {"t": [400, 900, 900, 20_000, 1500]}


@given(laws, st.floats(0.5, 2.0))
def test_a_scaled_law_has_the_scaled_mean(law, factor):
    """The planner asks for a mean: cuts and bins must not pull the law away from it."""
    moved = scaled(law, factor, TRACES)
    expected = factor * law_mean_tokens(law, TRACES)
    assert law_mean_tokens(moved, TRACES) == pytest.approx(expected, rel=0.01)
    sample = sample_lengths(moved, 4000, TRACES)
    assert sample.mean == pytest.approx(expected, rel=0.02)


def test_a_scaled_trace_keeps_its_tail():
    """Every observed length is there, scaled, as often as before."""
    sample = sample_lengths(scaled(Trace(file="t"), 1.5, TRACES), 5)
    assert sample.tokens.tolist() == [600, 1350, 1350, 2250, 30_000]


def test_a_cut_is_not_moved():
    """max_tokens is a setting of the framework: longer answers are cut, not stretched."""
    law = LogNormal(median_tokens=8000, sigma=0.5, max_tokens=16_000)
    assert scaled(law, 1.2).max_tokens == 16_000
    assert sample_lengths(scaled(law, 1.2), 1000).longest <= 16_000
    with pytest.raises(WorkloadError, match="passes the cut"):
        scaled(law, 2.0)


@pytest.mark.parametrize(
    "history",
    [
        [10.0 ** (25 * step) for step in range(12)],
        [1.0, 1e300] * 6,
        [1e300, 1e-300] * 6,
        [5e-324] * 8,
        [1e300] * 8,
    ],
)
def test_histories_of_no_possible_length_are_refused_or_answered(history):
    """A slip of the pen in history_tokens ended in an OverflowError, which is a defect of ours."""
    forecast = forecast_lengths(history)
    for ahead in range(len(history) + 1):
        try:
            found = forecast.at(ahead)
        except WorkloadError:
            continue
        assert 0 <= found.low <= found.value <= found.high < math.inf
        assert scaled(Fixed(tokens=100), found.value / 100).tokens >= 1

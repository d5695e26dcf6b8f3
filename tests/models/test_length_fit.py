"""Laws fitted to lengths: what was drawn comes back, and what cannot be fitted is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import WorkloadError
from libra_plan.models.length_fit import fit_drift, fit_log_normal
from libra_plan.models.length_forecast import law_mean_tokens
from libra_plan.models.lengths import sample_lengths
from libra_plan.profiles.schema_workload import LogNormal


def drawn(median, sigma, cut, count, seed):
    """Draw from a log-normal given that it does not pass the cut."""
    lengths = np.exp(np.random.default_rng(seed).normal(np.log(median), sigma, 4 * count))
    return np.maximum(lengths[lengths <= cut][:count], 1.0).astype(int).tolist()


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.2, 1.3), st.floats(300, 4000), st.sampled_from([4096, 8192, 40_960]), st.integers(0, 10**6)
)
def test_a_cut_log_normal_comes_back(sigma, median, cut, seed):
    """The cut must not make the tail thinner than it is: sigma within 10 %, the mean to the token."""
    lengths = drawn(median, sigma, cut, 4000, seed)
    fit = fit_log_normal([lengths], cut)
    assert fit.law.sigma == pytest.approx(sigma, rel=0.10)
    assert law_mean_tokens(fit.law) == pytest.approx(np.mean(lengths), rel=1e-3)
    assert fit.distance < 0.04


def test_intervals_of_sigma_hold_about_as_often_as_they_say():
    """90 % intervals, tried on 100 samples of 400 lengths, hold the truth in at least 80 % of them."""
    held = 0
    for seed in range(100):
        fit = fit_log_normal([drawn(1500, 0.9, 16_384, 400, seed)], 16_384)
        held += fit.sigma_low <= 0.9 <= fit.sigma_high
    assert held >= 80


def test_groups_that_drift_have_one_sigma():
    """Lengths that grow fourfold over a run are not more spread within a step."""
    groups = [drawn(500 * 1.05**step, 0.5, 40_960, 100, step) for step in range(30)]
    assert fit_log_normal(groups, 40_960).law.sigma == pytest.approx(0.5, rel=0.05)
    every = [length for group in groups for length in group]
    assert fit_log_normal([every], 40_960).law.sigma > 0.6


def test_a_law_that_is_no_log_normal_is_seen_to_be_off():
    """The distance must tell a user that two clusters of lengths are no log-normal."""
    two = [100] * 500 + [4000] * 500
    assert fit_log_normal([two], 8192).distance > 0.2


def test_quantile_samples_of_the_law_are_what_is_compared():
    """A sample that is the law itself lies within rounding of it."""
    lengths = sample_lengths(LogNormal(median_tokens=900, sigma=0.7, max_tokens=8192), 1000).tokens.tolist()
    assert fit_log_normal([lengths], 8192).distance < 0.01


@pytest.mark.parametrize(
    ("lengths", "words"), [([100] * 99, "too few lengths"), ([8192] * 990 + [1] * 30, "no log-normal")]
)
def test_what_no_law_can_be_fitted_to_is_refused(lengths, words):
    """A guess would be taken for a measurement."""
    with pytest.raises(WorkloadError, match=words):
        fit_log_normal([lengths], 8192)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.003, 0.04), st.integers(0, 10**6))
def test_a_drift_comes_back(growth, seed):
    """First and last mean within three times what 5 % of noise over 60 steps makes uncertain."""
    noise = np.random.default_rng(seed).normal(0.0, 0.05, 60)
    fit = fit_drift([(step, 800 * np.exp(growth * step + noise[step])) for step in range(60)])
    if fit.last_tokens is not None:
        assert fit.first_tokens == pytest.approx(800, rel=0.06)
        assert fit.last_tokens == pytest.approx(800 * np.exp(growth * 59), rel=0.06)
    assert fit.change_low * 0.95 < np.exp(growth * 59) < fit.change_high * 1.05


def test_noise_alone_is_no_drift():
    """A trend read out of noise would be simulated for hours; one in ten may be."""
    seen = 0
    for seed in range(60):
        noise = np.random.default_rng(seed).normal(0.0, 0.1, 40)
        seen += fit_drift(list(enumerate(1000 * np.exp(noise)))).last_tokens is not None
    assert seen <= 12


def test_too_few_steps_tell_no_drift():
    """Five steps are the base's business."""
    with pytest.raises(WorkloadError, match="too few steps"):
        fit_drift([(step, 800.0) for step in range(5)])

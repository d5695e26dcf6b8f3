import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.models.curves.curve import Residual, fit_residual, upper_quantile

LOGS = np.array([[0.0, 9.0], [2.0, 9.0], [4.0, 9.0], [0.0, 11.0], [2.0, 11.0], [4.0, 11.0]])
ERRORS = np.array([0.05, -0.02, 0.01, 0.03, 0.0, -0.04])


def test_the_correction_passes_near_the_points_and_dies_away_from_them():
    """Corrections are local knowledge: far away the plain form must remain."""
    residual = fit_residual(LOGS, ERRORS, np.ones(6), length=2.0, noise=1e-6)
    assert residual.log_factor(LOGS) == pytest.approx(ERRORS, abs=1e-3)
    assert abs(residual.log_factor(np.array([[60.0, 60.0]]))[0]) < 1e-6


def test_an_untrusted_row_hardly_bends_the_correction():
    """A row with scattered repeats gets a small weight and may not pull its neighbours."""
    weights = np.array([1.0, 1.0, 1.0, 1.0, 0.001, 1.0])
    errors = np.array([0.0, 0.0, 0.0, 0.0, 0.3, 0.0])
    residual = fit_residual(LOGS, errors, weights, length=2.0, noise=0.1)
    assert abs(residual.log_factor(np.array([[2.0, 11.0]]))[0]) < 0.01


def test_no_points_mean_no_correction():
    """A form without residuals stands alone."""
    assert Residual((), (), 2.0).log_factor(LOGS) == pytest.approx(np.zeros(6))


def test_the_bound_covers_new_errors_as_often_as_it_says():
    """A 90 % bound that holds 80 % of the time plans jobs that run out of memory."""
    rng = np.random.default_rng(5)
    held = [
        rng.standard_normal() <= upper_quantile(list(rng.standard_normal(39)), 0.9, 0.0) for _ in range(4000)
    ]
    assert 0.885 <= np.mean(held) <= 0.92


@given(st.lists(st.floats(-1, 1), max_size=60), st.sampled_from([0.5, 0.9, 0.95]))
def test_too_few_errors_fall_back_to_the_largest_and_a_margin(errors, level):
    """With n errors no rank above n exists: the margin must then be added, never a smaller bound."""
    bound = upper_quantile(errors, level, 0.1)
    assert bound >= 0
    if (len(errors) + 1) * level > len(errors):
        assert bound == max([0.0, *errors]) + 0.1
    else:
        assert bound <= max(0.0, *errors)

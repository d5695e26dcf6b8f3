import numpy as np
import pytest

from libra_plan.models.curves.curve import Residual, fit_residual

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

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.models.costs.base import huber_weights, relative_nnls

SIZES = np.array([1.0, 3, 10, 30, 100, 300, 1000, 3000])
TERMS = np.stack([np.ones_like(SIZES), SIZES], axis=1)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_exact_data_give_back_their_coefficients(fixed, slope):
    """Whatever the units, seconds or MiB, the law must come back."""
    found = relative_nnls(TERMS, TERMS @ np.array([fixed, slope]))
    assert found == pytest.approx([fixed, slope], rel=1e-6)


def test_coefficients_are_never_negative():
    """A negative cost per token would make longer sequences free."""
    found = relative_nnls(TERMS, 100.0 - 0.01 * SIZES)
    assert (found >= 0).all()


def test_one_wild_row_moves_the_fit_less_than_a_percent():
    """Measured tables hold rows that are off by factors."""
    measured = TERMS @ np.array([5.0, 0.2])
    measured[3] *= 5
    assert relative_nnls(TERMS, measured, rounds=50) == pytest.approx([5.0, 0.2], rel=0.01)


def test_small_residuals_keep_full_weight():
    """Repeat noise must not be treated as an outlier."""
    assert (huber_weights(np.array([0.001, -0.004, 0.0])) == 1).all()

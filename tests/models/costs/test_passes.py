import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.models.costs.base import places_of
from libra_plan.models.costs.passes import SoftFloorForm, fit_soft_floor

GRID = places_of(
    [(b, 16384 // b, 1) for b in (1, 2, 4, 8, 16, 32)] + [(1, 2.0**p, 1) for p in range(9, 16) if p != 14]
)


@given(st.floats(0.005, 0.05), st.floats(2e-6, 3e-5), st.floats(5e-11, 4e-10))
@settings(max_examples=10, deadline=None)
def test_a_known_floor_and_slope_are_recovered(floor, per_token, per_pair):
    """Both regimes, launch-bound and token-bound, have to be seen in one fit."""
    law = SoftFloorForm(floor, 0.001, per_token, per_pair, 4.0)
    found = fit_soft_floor(GRID, law.predict(GRID), np.ones(len(GRID)))
    assert found.predict(GRID) == pytest.approx(law.predict(GRID), rel=0.04)


@given(st.floats(0, 0.1), st.floats(0, 0.1), st.floats(1e-7, 1e-4), st.sampled_from([2.0, 4.0, 8.0]))
def test_time_grows_with_tokens_and_stays_above_both_regimes(floor, fixed, per_token, sharpness):
    """A longer batch is never cheaper, and the floor is never undercut."""
    form = SoftFloorForm(floor, fixed, per_token, 1e-10, sharpness)
    seconds = form.predict(places_of([(1, 2.0**p, 1) for p in range(4, 18)]))
    assert (np.diff(seconds) >= -1e-15).all()
    assert (seconds >= floor * (1 - 1e-12)).all()
    assert np.isfinite(seconds).all()


def test_few_rows_give_seconds_per_token_affine_in_length():
    """From a sweep of a few lengths a floor cannot be told from work."""
    at = places_of([(1, 2.0**p, 1) for p in range(11, 16)])
    law = SoftFloorForm(0.0, 0.0, 1e-5, 1e-10, 8.0)
    found = fit_soft_floor(at, law.predict(at), np.ones(5))
    assert (found.floor_s, found.fixed_s) == (0, 0)
    assert found.per_token_pair_s == pytest.approx(1e-10, rel=1e-6)

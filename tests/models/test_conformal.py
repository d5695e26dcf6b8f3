import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.models.curves.curve import upper_quantile


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

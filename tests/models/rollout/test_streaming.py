"""What staleness costs rollouts that never drain."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.rollout.makespan import Trajectories
from libra_plan.models.rollout.streaming import Stream, least_step_s, stream_of

seconds = st.floats(0.0, 1e4)


@given(seconds, seconds, seconds, st.integers(1, 8))
def test_the_step_is_the_least_that_keeps_the_bound(work_s, latency_s, rest_s, staleness):
    """At it, what generates, what waits for its batch and what is held fill all places, no more."""
    step = float(least_step_s(work_s, latency_s, rest_s, staleness))
    assert step >= work_s - 1e-6
    if step > work_s * (1 + 1e-6) and step > 1e-3:
        generating = latency_s * step / (step - work_s)
        assert generating + step / 2.0 + rest_s <= (1 + staleness) * step * (1 + 1e-6)
        if latency_s > 1e-3:
            shorter = work_s + (step - work_s) * 0.99
            needs = latency_s * shorter / (shorter - work_s) + shorter / 2.0 + rest_s
            assert needs > (1 + staleness) * shorter * (1 - 1e-9)


@given(seconds, seconds, seconds, st.integers(1, 8), st.floats(0.0, 100.0))
def test_the_step_grows_with_each_part_and_falls_with_staleness(work_s, latency_s, rest_s, staleness, more):
    """Options are dropped by their parts, one by one: that is right only if the step grows with each."""
    step = least_step_s(work_s, latency_s, rest_s, staleness) * (1 - 1e-9) - 1e-9
    assert least_step_s(work_s + more, latency_s, rest_s, staleness) >= step
    assert least_step_s(work_s, latency_s + more, rest_s, staleness) >= step
    assert least_step_s(work_s, latency_s, rest_s + more, staleness) >= step
    assert least_step_s(work_s, latency_s, rest_s, staleness + 1) * (1 - 1e-9) - 1e-9 <= (
        least_step_s(work_s, latency_s, rest_s, staleness)
    )


def test_it_takes_arrays_as_well():
    """Tables of phases ask for all rows at once, and must get what each would."""
    rows = np.array([[1.0, 2.0, 3.0], [4.0, 0.0, 9.0], [0.0, 0.0, 2.0]])
    found = least_step_s(*rows.T, 2)
    assert found == pytest.approx([least_step_s(*row, 2) for row in rows])


def test_work_is_shared_by_replicas_and_latency_is_not():
    """A trajectory takes as long however many replicas there are; a step's tokens do not."""
    work = Trajectories(np.array([100, 200]), np.array([1000, 3000]), 2, 1.5)
    fit = DecodeCoefficients(0.01, 1e-4, 1e-8, 0.0)
    one, four = stream_of(work, fit, 1, 2.0), stream_of(work, fit, 4, 2.0)
    tokens = 1000 * (1e-4 + 1e-8 * 600) + 3000 * (1e-4 + 1e-8 * 1700)
    assert one == Stream(pytest.approx(tokens + 2.0), pytest.approx(0.01 * 2000 + 3.0))
    assert (four.work_s, four.latency_s) == pytest.approx((one.work_s / 4, one.latency_s))

"""Estimates in the place of bounds."""

from __future__ import annotations

import pytest
from doctor_cases import look, work

from libra_plan.models.quantities import Estimate, Origin
from libra_plan.planner.doctor.estimate import StepChange, with_estimates


def step(seconds):
    """Return a step time with a tenth of bounds."""
    return Estimate(seconds, 0.9 * seconds, 1.1 * seconds, "s", Origin.INTERPOLATED)


@pytest.fixture
def slow():
    """Return the diagnosis of a slow rollout."""
    return look([], [*work("actor", 1200, waiting_s=4.0), *work("rollout", 1200, waiting_s=0.0)])


def test_the_estimate_names_both_steps_and_keeps_the_bound(slow):
    """What is predicted, and what it can never exceed."""
    (finding,) = with_estimates(slow, {"t": StepChange(step(60.0), step(40.0))}).findings
    assert (finding.gain.kind, finding.gain.factor) == ("estimate", 1.5)
    assert "40 s (36 – 44) instead of 60 s (54 – 66)" in finding.gain.text
    assert finding.figures["gain_bound_factor"] == pytest.approx(1 / 0.6)


def test_a_plan_that_changes_nothing_says_so(slow):
    """The planner has nothing better: look elsewhere."""
    (finding,) = with_estimates(slow, {"t": StepChange(step(60.0), step(60.0))}).findings
    assert "no plan on these GPUs is better" in finding.gain.text


def test_tasks_that_were_not_compared_keep_their_bounds(slow):
    """No figure is made up."""
    assert with_estimates(slow, {"u": StepChange(step(60.0), step(40.0))}) == slow

"""Averages of what is seen: steady ones settle, changed ones begin anew, outliers move nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from loops import running_best, scaling, world

from libra_plan.planner.controller.estimators import corrected, rate_errors, updated
from libra_plan.planner.controller.hysteresis import TrustPolicy
from libra_plan.planner.telemetry.observations import ObservedTime

TRUST = TrustPolicy()


def seconds_of(problem) -> float:
    held = problem.running[0].roles[0]
    gpus = sum(map(len, held.replicas))
    return next(o.time_s.value for o in problem.tasks[0].roles[0].options if o.gpus == gpus)


def followed(ratios, trust: TrustPolicy = TRUST):
    problem = running_best(world(4, [scaling("a", 100.0, 0.7, 4)]))
    estimates = ()
    for ratio in ratios:
        observed = [ObservedTime("a", "train", seconds_of(problem) * ratio)]
        estimates = updated(estimates, problem, observed, trust)
    return problem, estimates


def test_what_is_as_predicted_changes_nothing() -> None:
    """The problem stays the same object, so that an unchanged world costs nothing to look at."""
    problem, estimates = followed([1.0] * 5)
    assert corrected(problem, estimates) is problem


def test_noise_is_averaged() -> None:
    """A hundred looks with 5 % noise leave an error of about half a percent."""
    rng = np.random.default_rng(1)
    _, estimates = followed(1.3 * np.exp(rng.normal(0.0, 0.05, 100)))
    assert estimates[0].level == pytest.approx(math.log(1.3), abs=0.03)
    assert math.sqrt(estimates[0].variance) == pytest.approx(0.05, rel=0.4)


def test_a_lasting_change_is_followed_within_four_looks() -> None:
    """Real drift must not be averaged away: after four looks the new level counts alone."""
    _, estimates = followed([1.0] * 50 + [2.0] * 4)
    assert estimates[0].level == pytest.approx(math.log(2.0), abs=0.1)


def test_one_outlier_moves_little() -> None:
    """A single stall of ten times is no change of the world."""
    _, estimates = followed([1.0] * 50 + [10.0])
    assert abs(estimates[0].level) < 0.02


def test_a_form_seen_apart_is_corrected_apart() -> None:
    """What one form is slower by says nothing of another, and its error is its own doubt."""
    problem = running_best(world(4, [scaling("a", 100.0, 0.7, 4)]))
    option = problem.tasks[0].roles[0].options[1]
    seen = [ObservedTime("a", "train", option.time_s.value * 2.0, option.form)] * 1
    estimates = ()
    for _ in range(8):
        estimates = updated(estimates, problem, seen, TRUST)
    changed = corrected(problem, estimates).tasks[0].roles[0].options
    assert changed[0] == problem.tasks[0].roles[0].options[0]
    assert changed[1].time_s.value == pytest.approx(2.0 * option.time_s.value, rel=0.2)
    assert set(rate_errors(estimates)["a", "train"]) == {(option.gpu_class, option.form)}


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_left_out(seconds: float) -> None:
    """A broken counter is not a fast role."""
    problem = running_best(world(4, [scaling("a", 100.0, 0.7, 4)]))
    assert (
        updated(
            (), problem, [ObservedTime("a", "train", seconds), ObservedTime("ghost", "train", 1.0)], TRUST
        )
        == ()
    )


def test_the_first_look_counts_half_and_its_variance_is_unbiased() -> None:
    """The models' word is as good as one look; the policy's noise weighs as much as five."""
    _, (estimate,) = followed([math.exp(0.1)])
    assert estimate.level == pytest.approx(0.05)
    assert estimate.variance == pytest.approx(0.05**2 + (0.1**2 / 2 - 0.05**2) / 7)


def test_a_steady_rate_is_averaged_over_so_many_looks() -> None:
    """After twenty looks a deviation counts a fifth, not a twentieth, where the policy says five."""
    _, (estimate,) = followed([1.0] * 20 + [math.exp(0.01)], TrustPolicy(smoothing_looks=5))
    assert estimate.looks == 5.0
    assert estimate.level == pytest.approx(0.01 / 5)

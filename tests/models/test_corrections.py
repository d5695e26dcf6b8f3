"""Following how far a cost model is off: what is known, how well, and when it changed."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.errors import ProfileError, RefusedError
from libra_plan.models.corrections import (
    Correction,
    CorrectionsFile,
    RoleCorrection,
    read_corrections,
    with_observation,
)
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin


def follow(ratios, state=None):
    state = state or Correction()
    for ratio in ratios:
        state = with_observation(state, ratio, 1.0)
    return state


def noisy(seed, number, factor=1.0, spread=0.05, alike=0.0):
    rng, error = random.Random(seed), 0.0
    for _ in range(number):
        error = alike * error + math.sqrt(1 - alike**2) * rng.gauss(0.0, spread)
        yield factor * math.exp(error)


def test_few_observations_correct_nothing():
    """Seven slow steps may be a warm-up."""
    state = follow([2.0] * 7)
    assert (state.known, state.factor, state.bounds) == (False, 1.0, (1.0, 1.0))
    assert follow([2.0], state).factor == pytest.approx(2.0)


def test_the_bounds_hold_nine_times_in_ten():
    """An error bar that does not hold is worse than none; also where steps resemble each other."""
    for alike in (0.0, 0.5):
        inside = 0
        for seed in range(200):
            low, high = follow(noisy(seed, 200, 1.2, alike=alike)).bounds
            inside += low <= 1.2 <= high
        assert 0.8 <= inside / 200 <= 0.97, alike


def test_a_change_of_a_tenth_starts_anew_soon():
    """Old steps of another law must not linger: the factor is that of the steps since the change."""
    for seed in range(20):
        state = follow(noisy(seed, 200))
        state = follow(noisy(seed + 100, 40, 1.1), state)
        assert state.changes == 1
        assert state.factor == pytest.approx(1.1, rel=0.04)
        assert state.observations <= 60


def test_a_steady_law_raises_no_alarm():
    """10,000 independent steps of one law are one law."""
    assert [follow(noisy(seed, 2000)).changes for seed in range(5)] == [0] * 5


@given(st.floats(0.2, 5.0), st.floats(0.01, 1e4), st.integers(8, 100))
def test_only_the_ratio_matters(ratio, predicted_s, number):
    """Milliseconds and hours are corrected alike, and a steady ratio is found exactly."""
    state = Correction()
    for _ in range(number):
        state = with_observation(state, ratio * predicted_s, predicted_s)
    assert state.factor == pytest.approx(ratio)
    low, high = state.bounds
    assert low <= state.factor <= high
    assert high / low < 1.02


@pytest.mark.parametrize(("observed_s", "predicted_s"), [(1e300, 1e-300), (1.0, 1001.0), (float("inf"), 1.0)])
def test_an_observation_a_thousand_times_off_is_refused(observed_s, predicted_s):
    """It would drown every other one, or become no number at all."""
    with pytest.raises(RefusedError, match="factor of 1000"):
        with_observation(Correction(), observed_s, predicted_s)


def known(factor=1.2):
    state = Correction()
    for _ in range(20):
        state = with_observation(state, factor, 1.0)
    return RoleCorrection(task="t", role="r", basis="step", state=state)


def time_s(origin=Origin.MEASURED):
    return Estimate(10.0, 9.0, 11.0, "s", origin)


def test_a_time_inside_what_was_measured_is_multiplied_with_its_bounds():
    """The bounds of model and factor both count."""
    corrected = known().corrected(time_s(), Layout())
    low, high = known().state.bounds
    assert corrected.value == pytest.approx(12.0)
    assert (corrected.low, corrected.high) == (pytest.approx(9.0 * low), pytest.approx(11.0 * high))


def test_another_layout_may_be_as_the_model_says():
    """A factor seen at tp1 is likely, but not known, at tp2: its bounds hold both."""
    corrected = known().corrected(time_s(), Layout(tp=2))
    assert corrected.value == pytest.approx(12.0)
    assert corrected.low == 9.0


@pytest.mark.parametrize("origin", [Origin.EXTRAPOLATED, Origin.ASSUMED])
def test_outside_what_was_measured_the_factor_is_likely_but_not_known(origin):
    """Left uncorrected it would look better than what was seen; its bounds hold both, its origin stays."""
    corrected = known().corrected(time_s(origin), Layout())
    assert corrected.value == pytest.approx(12.0)
    assert (corrected.low, corrected.origin) == (9.0, origin)
    faster = known(0.5).corrected(time_s(origin), Layout())
    assert (faster.value, faster.high) == (pytest.approx(5.0), 11.0)


def test_too_little_known_corrects_nothing():
    """An empty state must not multiply by anything."""
    assert RoleCorrection(task="t", role="r", basis="step").corrected(time_s(), Layout()) is None


def test_the_file_comes_back_as_it_was_and_typos_are_refused(tmp_path):
    """It is state that a later run goes on from, and a file that people may edit."""
    file = CorrectionsFile(1, (known(), RoleCorrection(task="t", role="s", basis="stage", tp=2)))
    path = tmp_path / "corrections.json"
    path.write_bytes(msgspec.json.encode(file))
    read, digest = read_corrections(path)
    assert read == file
    assert len(digest) == 64
    path.write_bytes(msgspec.json.encode(file).replace(b'"role"', b'"roll"'))
    with pytest.raises(ProfileError, match="roll"):
        read_corrections(path)
    path.write_bytes(msgspec.json.encode(CorrectionsFile(1, (known(), known()))))
    with pytest.raises(ProfileError, match="twice"):
        read_corrections(path)


@pytest.mark.parametrize("state", [{"mean": 1e308}, {"variance": -1.0}, {"observations": -3}])
def test_a_state_that_cannot_be_is_refused(tmp_path, state):
    """A file that was edited must not end a solve with a defect."""
    role = {"task": "t", "role": "r", "basis": "step", "state": state}
    path = tmp_path / "corrections.json"
    path.write_bytes(msgspec.json.encode({"schema_version": 1, "corrections": [role]}))
    with pytest.raises(ProfileError):
        read_corrections(path)

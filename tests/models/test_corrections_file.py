"""The corrections file, and what it does to a stage time."""

from __future__ import annotations

import msgspec
import pytest

from libra_plan.errors import ProfileError
from libra_plan.models.corrections import (
    Correction,
    CorrectionsFile,
    RoleCorrection,
    read_corrections,
    with_observation,
)
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin


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

"""Corrections in the planner's prices: for all options of the role, for the right profile, and told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.models.corrections import Correction, CorrectionsFile, RoleCorrection, with_observation
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.planner.pricing import corrected_role, corrected_sharing
from libra_plan.planner.problem import Role, Sharing, SharingKind, StageOption


def option(origin=Origin.MEASURED, *, tp=1, gpu_class="h200_sxm"):
    time_s = Estimate(10.0, 9.0, 11.0, "s", origin)
    return StageOption(gpu_class, Layout(tp=tp), 1, time_s, 1.0, 1.0, 1.0, 1.0, None, None, ("as before",))


def file_of(factor=1.5, **more):
    state = Correction()
    for _ in range(10):
        state = with_observation(state, factor, 1.0)
    given = {
        "task": "t",
        "role": "r",
        "basis": "step",
        "profile": "p",
        "gpu_class": "h200_sxm",
        "state": state,
    }
    return CorrectionsFile(1, (RoleCorrection(**given | more),))


def corrected(*options, corrections, task="t", profiles=("p", "q")):
    return corrected_role(Role("r", "actor_train", options), task, profiles, corrections).options


def test_measured_options_are_multiplied_and_say_so():
    """A plan must tell where its numbers come from."""
    (only,) = corrected(option(), corrections=file_of())
    assert only.time_s.value == pytest.approx(15.0)
    assert only.notes[0] == "as before"
    assert "corrected × 1.500" in only.notes[1]
    assert "10 windows" in only.notes[1]


def test_options_outside_what_was_measured_are_corrected_and_say_that_it_was_not_seen_there():
    """A role seen to be slow must not flee to the options that nobody has seen."""
    (only,) = corrected(option(Origin.EXTRAPOLATED), corrections=file_of())
    assert (only.time_s.value, only.time_s.origin) == (pytest.approx(15.0), Origin.EXTRAPOLATED)
    assert only.time_s.low == 9.0
    assert "corrected × 1.500" in only.notes[1]
    assert "extrapolated" in only.notes[2]


@given(st.floats(0.2, 5.0), st.lists(st.sampled_from(Origin), min_size=2, max_size=6))
def test_a_correction_changes_no_order_among_a_roles_options(factor, origins):
    """The factor says how slow the role is, not which number of GPUs suits it."""
    before = [option(origin) for origin in origins]
    after = corrected(*before, corrections=file_of(factor))
    assert [b.time_s.value / a.time_s.value for a, b in zip(before, after, strict=True)] == pytest.approx(
        [factor] * len(before)
    )


@pytest.mark.parametrize(
    "other",
    [
        {"task": "other"},
        {"role": "other"},
        {"profile": "other"},
        {"gpu_class": "a100_sxm"},
        {"state": Correction()},
    ],
)
def test_what_was_observed_of_something_else_corrects_nothing(other):
    """Another task, role, profile or GPU class, or too few windows."""
    assert corrected(option(), corrections=file_of(**other)) == (option(),)


def test_no_corrections_change_nothing():
    """Most plans have none."""
    assert corrected(option(), corrections=None) == (option(),)


def test_a_seat_on_a_shared_gpu_is_of_its_class():
    """Half a GPU is of the class it is half of."""
    (only,) = corrected(option(gpu_class="h200_sxm.seat"), corrections=file_of())
    assert only.time_s.value == pytest.approx(15.0)


def test_a_joint_engine_is_corrected_like_the_engines_it_replaces():
    """Uncorrected it would win by what the others were found to be slower."""
    slow, slower = file_of(1.2), file_of(1.5, task="u", role="s")
    both = CorrectionsFile(1, slow.corrections + slower.corrections)
    sharing = Sharing(SharingKind.ENGINE, ("t", "u"), ("r", "s"), (option(),))
    (only,) = corrected_sharing(sharing, both).options
    assert only.time_s.value == pytest.approx(15.0)
    turns = Sharing(SharingKind.TURNS, ("t", "u"))
    assert corrected_sharing(turns, both) == turns
    assert corrected_sharing(sharing, file_of(role="other")) == sharing

"""Profiles at a path: fitted, checked and asked in one call each."""

from __future__ import annotations

import pytest

from libra_plan.errors import InputError
from libra_plan.models.assess import check_profiles, fit_profiles, predict_costs
from libra_plan.profiles.catalog import shipped_folder

NAME = "h200-qwen2.5-0.5b-decode"
FOLDER = shipped_folder() / NAME
QUESTIONS = "role,model,precision,mode,batch,seq_len,remark\ndecode,qwen2.5-0.5b,bf16,cudagraph,4,1024,x\n"


def test_one_profile_is_fitted_under_its_id():
    """A profile's own folder is a path like any other."""
    fits = fit_profiles(FOLDER)
    assert list(fits) == [NAME]
    assert fits[NAME].fits[0].time is not None


def test_a_folder_without_profiles_is_refused(tmp_path):
    """The way out is to make some."""
    with pytest.raises(InputError, match="profile measure or import"):
        fit_profiles(tmp_path)


def test_a_check_counts_the_points_it_predicted():
    """Every point stands in the list of predictions, the worst first."""
    (check,) = check_profiles(FOLDER)
    assert check.profile == NAME
    errors = [abs(point.error) for point in check.left_out]
    assert errors == sorted(errors, reverse=True)
    assert len({point.where for point in check.left_out}) == check.points


def test_a_picture_that_cannot_be_written_is_the_user_s(tmp_path):
    """No traceback for a folder that is not there."""
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="cannot write there"):
        check_profiles(FOLDER, plot=tmp_path / "none" / "check.svg")


def test_questions_are_answered_in_their_order(tmp_path):
    """What was not read of the file is told, and what was refused is counted."""
    path = tmp_path / "points.csv"
    path.write_text(QUESTIONS + "decode,qwen2.5-0.5b,bf16,cudagraph,4,9999999,y\n")
    found = predict_costs(FOLDER, path)
    assert [question.line for question in found.questions] == [2, 3]
    assert found.answers[0].time_s > 0
    assert found.answers[1].refusal is not None
    assert found.refused == 1
    assert found.notes[0] == "columns that were not read: remark"

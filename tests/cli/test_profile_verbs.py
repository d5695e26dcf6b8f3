"""`profile fit`, `check` and `predict` as commands."""

from __future__ import annotations

import json

import pytest
from profile_files import write_profile

from libra_plan.models.curves.curve import MEMORY_LEVEL, TIME_LEVEL

POINTS = (
    "role,model,precision,recompute,mode,batch,seq_len\n"
    "decode,qwen2.5-0.5b,bf16,,cudagraph,4,1024\n"
    "decode,qwen2.5-0.5b,bf16,,cudagraph,4,9999999\n"
    "decode,qwen2.5-0.5b,fp8,,cudagraph,4,1024\n"
)


@pytest.fixture
def points(tmp_path):
    """Write three questions: one that has an answer, two that have none."""
    (tmp_path / "points.csv").write_text(POINTS)
    return tmp_path / "points.csv"


def test_predict_answers_every_row_in_order(call, one_profile, points):
    """Rows are joined to the file by position; what is refused says why and what to do."""
    ran = call("profile", "predict", one_profile, "--points", points, "--format", "json")
    assert ran.code == 0
    rows = json.loads(ran.out)
    assert [row["line"] for row in rows] == [2, 3, 4]
    assert rows[0]["time_s"] > 0
    assert rows[0]["memory_upper_mib"] >= rows[0]["memory_mib"] > 0
    assert rows[0]["tokens_per_s"] == pytest.approx(4 / rows[0]["time_s"])
    assert rows[0]["origin"] in ("measured", "interpolated")
    assert rows[0]["refusal"] is None
    for row in rows[1:]:
        assert row["time_s"] is None
        assert row["refusal"]["message"]
        assert row["refusal"]["way_out"]
    assert "3 rows, 2 refused, in" in ran.err


def test_predict_as_a_table_shows_the_refusal(call, one_profile, points):
    """People read the table: a row without numbers must say why."""
    out = call("profile", "predict", one_profile, "--points", points).out
    assert "outside what was measured" in out.splitlines()[2]


def test_predict_refuses_a_bad_row_and_answers_the_rest(call, one_profile, points):
    """The help promises a reason for each row; only a file that is no table ends the run."""
    points.write_text(POINTS + "decoding,qwen2.5-0.5b,bf16,,cudagraph,4,1024\nscore,m,,,,many,\n")
    ran = call("profile", "predict", one_profile, "--points", points, "--format", "json")
    assert ran.code == 0, ran.err
    rows = json.loads(ran.out)
    assert [row["line"] for row in rows] == [2, 3, 4, 5, 6]
    assert [row["profile"] is None for row in rows] == [False, True, True, True, True]
    assert (rows[3]["role"], rows[4]["batch"]) == ("decoding", "many")
    assert "unknown role; got decoding" in rows[3]["refusal"]["message"]
    assert "not a size; got many" in rows[4]["refusal"]["message"]
    table = call("profile", "predict", one_profile, "--points", points).out.splitlines()
    assert table[2].split()[:3] == ["3", "decode", "qwen2.5-0.5b,"]
    assert table[4].split()[:3] == ["5", "decoding", "model"]
    assert "points.csv:5: role: unknown role" in table[4]
    points.write_text("role,model\nscore,m\n")
    assert call("profile", "predict", one_profile, "--points", points).code == 2


def test_predict_says_where_nothing_was_answered(call, one_profile, points):
    """A script goes by the exit code: 0 is no answer to a file of refusals."""
    lines = POINTS.splitlines()
    points.write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    ran = call("profile", "predict", one_profile, "--points", points, "--format", "json")
    assert (ran.code, len(json.loads(ran.out))) == (2, 2)
    assert "no question was answered; got 2 rows, each refused with its reason; mend" in ran.err


def test_predict_goes_further_only_on_request(call, one_profile, points):
    """`--allow-prior` answers beyond the measured, and marks it."""
    ran = call("profile", "predict", one_profile, "--points", points, "--allow-prior", "--format", "json")
    assert json.loads(ran.out)[1]["origin"] == "assumed"


def test_fit_and_check_of_one_profile(call, one_profile):
    """Both take one profile's folder as well as a folder of them."""
    fits = json.loads(
        call("profile", "fit", one_profile / "h200-qwen2.5-0.5b-decode", "--format", "json").out
    )
    ((name, (fitted,)),) = fits.items()
    assert name == "h200-qwen2.5-0.5b-decode"
    assert fitted["time_s"]["coefficients"]["fixed_s"] > 0
    (checked,) = json.loads(call("profile", "check", one_profile, "--format", "json", "--worst", 3).out)
    assert checked["layouts"][0]["time"]["median"] < 0.05
    assert len(checked["worst"]) == 3


def test_what_cannot_be_fitted_or_checked_says_why(call, tmp_path):
    """A question mark sends people to the source code."""
    table = "batch_sequences,seq_len_tokens,time_s\n" + "".join(f"{n},512,{n}\n" for n in (1, 2, 4))
    write_profile(tmp_path / "few", points=table)
    fit = call("profile", "fit", tmp_path / "few").out
    assert "no fit: 3 places with a time, a fit needs 6" in fit
    assert "no fit: no memory measured" in fit
    check = call("profile", "check", tmp_path / "few").out
    assert "time: 3 places with a time, a fit needs 6; memory: no memory measured" in check
    assert "?" not in fit + check
    (data,) = json.loads(call("profile", "check", tmp_path / "few", "--format", "json").out)
    assert data["layouts"][0]["no_memory"] == "no memory measured"


def test_the_table_of_a_check_says_what_covered_means(call, one_profile):
    """The word alone can mean anything; the levels are those the bounds are made for."""
    out = call("profile", "check", one_profile, "--worst", 0).out
    assert "covered: share of the points" in out.splitlines()[-1]
    assert f"{100 * TIME_LEVEL:.0f} % of the time" in out
    assert f"the upper bound, {100 * MEMORY_LEVEL:.0f} %" in out
    assert "why not" not in out


def test_check_as_a_table_lists_the_worst_with_their_lines(call, one_profile):
    """Who checks wants to know which row to look at."""
    out = call("profile", "check", one_profile, "--worst", 2).out
    assert "h200-qwen2.5-0.5b-decode/points.csv:" in out.splitlines()[-1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # old matplotlib, new pyparsing
def test_check_draws(call, one_profile, tmp_path):
    """The picture is written where it is asked for, and said so on stderr."""
    pytest.importorskip("matplotlib")
    ran = call("profile", "check", one_profile, "--plot", tmp_path / "a.svg")
    assert ran.code == 0
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert "written:" in ran.err
    assert call("profile", "check", one_profile, "--plot", tmp_path / "no" / "a.svg").code == 2


def test_a_folder_without_profiles_is_refused(call, folder, tmp_path):
    """Nothing to check is a mistake, not a success."""
    (tmp_path / "none").mkdir()
    ran = call("profile", "check", tmp_path / "none")
    assert ran.code == 2
    assert "no profile in this folder" in ran.err

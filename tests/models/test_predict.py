"""Predictions for tables of questions, on the shipped measurements."""

from __future__ import annotations

import csv
import dataclasses

import numpy as np
import pytest

from libra_plan.errors import InputError
from libra_plan.models.fit import fit_profile
from libra_plan.models.parallelism import Layout
from libra_plan.models.predict import predict
from libra_plan.models.priors import models as prior
from libra_plan.models.query import Query
from libra_plan.models.questions import BadQuestion, CostQuestion
from libra_plan.profiles.catalog import load_profile, shipped_folder

NAMES = [f"h200-qwen2.5-{size}-{phase}" for size in ("0.5b", "1.5b", "7b") for phase in ("decode", "train")]


@pytest.fixture(scope="module")
def profiles():
    return {name: load_profile(shipped_folder() / name) for name in NAMES}


@pytest.fixture(scope="module")
def fit():
    known = {}

    def fitted(profile):
        if profile.file.id not in known:
            known[profile.file.id] = fit_profile(profile.file, profile.points)
        return known[profile.file.id]

    return fitted


def _question(phase, model, batch, length, **stated):
    blank = dict.fromkeys(("precision", "recompute", "mode", "framework", "gpu_class", "profile"))
    return CostQuestion(2, phase, model, query=Query(batch, length), **(blank | stated))


def test_measured_points_come_back_as_measured(profiles, fit):
    """A table of what was measured must be answered by exactly that, in the same units."""
    with (shipped_folder() / "h200-qwen2.5-7b-decode" / "points.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "ok"]
    asked = [
        _question("decode", "qwen2.5-7b", float(r["batch_sequences"]), float(r["seq_len_tokens"]))
        for r in rows
    ]
    answers = predict(profiles, asked, fit=fit).rows
    assert [answer.time_s for answer in answers] == [float(row["time_s"]) for row in rows]
    assert [answer.memory_mib for answer in answers] == [float(row["peak_reserved_mib"]) for row in rows]
    assert {answer.origin for answer in answers} == {"measured"}
    for answer, row in zip(answers, rows, strict=True):
        assert answer.tokens_per_s == pytest.approx(float(row["tokens_per_s"]), rel=1e-3)


def test_tokens_of_a_pass_are_all_its_tokens(profiles, fit):
    """A training step processes batch × length tokens, a decode step one a sequence."""
    (answer,) = predict(profiles, [_question("train", "qwen2.5-7b", 2, 3000)], fit=fit).rows
    assert answer.tokens_per_s == pytest.approx(6000 / answer.time_s)
    assert answer.time_low_s < answer.time_s < answer.time_high_s
    assert answer.memory_mib < answer.memory_upper_mib


def test_parts_of_accumulated_steps_answer_only_when_named(fit):
    """A role that trains asks for a whole step; they were listed as equals that `--set` could name."""
    whole, part = "h200b-qwen2.5-7b-train", "h200c-qwen2.5-7b-train-accumulated"
    both = {name: load_profile(shipped_folder() / name) for name in (part, whole)}
    said = predict(both, [_question("train", "qwen2.5-7b", 2, 16384)], fit=fit)
    assert [row.profile for row in said.rows] == [whole]
    assert said.notes == ()
    named = _question("train", "qwen2.5-7b", 2, 16384, profile=part)
    assert [row.profile for row in predict(both, [named], fit=fit).rows] == [part]
    alone = predict({part: both[part]}, [_question("train", "qwen2.5-7b", 2, 16384)], fit=fit)
    assert [row.profile for row in alone.rows] == [part]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e-6, 1.0, 1e12, 1e13, 1e300, 1.7e308, float("inf")])
@pytest.mark.parametrize("model", ["qwen2.5-7b", "qwen3-8b"])
@pytest.mark.parametrize("phase", ["decode", "train"])
def test_no_size_is_too_odd_for_an_answer_or_a_refusal(profiles, fit, phase, model, size):
    """With priors one row of 1e308 ended a whole table in a traceback, as infinity is no JSON number."""
    asked = [_question(phase, model, batch, length) for batch in (1.0, size) for length in (size, 4096.0)]
    rows = predict(profiles, asked, fit=fit, allow_prior=True).rows
    for row, question in zip(rows, asked, strict=True):
        parts = (question.query.batch_sequences, question.query.seq_len_tokens)
        possible = all(1e-6 <= part <= 1e12 for part in parts)
        assert (row.refusal is None) == possible
        numbers = (row.time_low_s, row.time_s, row.time_high_s, row.memory_mib, row.memory_upper_mib)
        assert not possible or all(np.isfinite(number) and number > 0 for number in numbers)


def test_refusals_stand_in_their_row(profiles, fit):
    """One question too far must not cost the answers to the others."""
    asked = [
        _question("decode", "qwen2.5-7b", 4, 1024),
        _question("decode", "qwen2.5-7b", 4, 10**7),
        _question("decode", "qwen3-8b", 4, 1024),
        _question("score", "qwen2.5-7b", 4, 1024),
        _question("decode", "qwen2.5-7b", 5, 1024),
    ]
    rows = predict(profiles, asked, fit=fit).rows
    assert [row.refusal is None for row in rows] == [True, False, False, False, True]
    assert all(row.refusal.way_out for row in rows if row.refusal)
    assert "outside what was measured" in rows[1].refusal.message
    assert "measure it, or pass --allow-prior" in rows[2].refusal.message
    assert rows[1].time_s is None
    assert rows[1].memory_refusal is not None


def test_a_model_never_measured_needs_leave(profiles, fit):
    """With `allow_prior` other sizes stand in: marked as assumed, near the truth, bounds around it."""
    without = {name: each for name, each in profiles.items() if "-7b-" not in name}
    truth = profiles["h200-qwen2.5-7b-decode"].points
    points = [p for p in truth if p.status == "ok" and p.seq_len_tokens >= 1024]
    asked = [
        _question("decode", "qwen2.5-7b", p.batch_sequences, p.seq_len_tokens, precision="bf16")
        for p in points
    ]
    assert all(row.refusal for row in predict(without, asked, fit=fit).rows)
    answers = predict(without, asked, fit=fit, allow_prior=True)
    assert {row.origin for row in answers.rows} == {"assumed"}
    errors = sorted(abs(row.time_s / p.time_s - 1) for row, p in zip(answers.rows, points, strict=True))
    assert errors[len(errors) // 2] < 0.15
    assert "qwen2.5-7b was not measured" in answers.notes[0]


def test_a_prior_takes_the_precision_that_is_asked(profiles, fit):
    """States in fp32 take twice the room of bf16 ones: the donor's precision must not decide."""
    without = {name: each for name, each in profiles.items() if "-7b-" not in name}
    lean, full = (
        predict(
            without, [_question("train", "qwen2.5-7b", 1, 2048, precision=name)], fit=fit, allow_prior=True
        )
        for name in ("bf16", "fp32-master/bf16")
    )
    assert lean.rows[0].memory_mib < 0.7 * full.rows[0].memory_mib


def test_a_shape_nobody_knows_is_refused(profiles, fit):
    """A prior needs the model's dimensions; without them there is nothing to carry over by."""
    (row,) = predict(profiles, [_question("decode", "my-own", 4, 1024)], fit=fit, allow_prior=True).rows
    assert "no such model" in row.refusal.message


def test_sets(profiles, fit):
    """A set that no profile is in is a mistake of the caller, not of every row."""
    asked = [_question("decode", "qwen2.5-7b", 4, 1024)]
    assert predict(profiles, asked, fit=fit, set_name="h200").rows[0].refusal is None
    with pytest.raises(InputError, match="allowed: h200"):
        predict(profiles, asked, fit=fit, set_name="h100")


def test_order_is_kept_whoever_answers(profiles, fit):
    """Rows are grouped by profile for speed and must come back where they were."""
    asked = [
        _question("decode", f"qwen2.5-{size}", batch, 1024)
        for batch in (3, 5)
        for size in ("7b", "0.5b", "1.5b")
    ]
    rows = predict(profiles, asked, fit=fit).rows
    assert [row.profile for row in rows] == [
        f"h200-qwen2.5-{size}-decode" for size in ("7b", "0.5b", "1.5b")
    ] * 2


def test_a_row_nobody_answers_names_no_profile(profiles, fit):
    """Whoever joins answers by profile must not count refusals as its answers."""
    reason = InputError("unknown role", got="decoding")
    asked = [
        BadQuestion(2, {"role": "decoding"}, reason),
        _question("decode", "qwen2.5-7b", 4, 1024),
        _question("decode", "qwen2.5-7b", 4, 9_999_999),
    ]
    bad, good, outside = predict(profiles, asked, fit=fit, set_name="h200").rows
    assert (bad.profile, outside.profile) == (None, None)
    assert good.profile == "h200-qwen2.5-7b-decode"
    assert bad.refusal.message == reason.message
    assert outside.refusal.message


def test_the_notes_say_what_unmeasured_layouts_and_ranks_were_charged(profiles, fit):
    """An assumed number without its penalty could not be argued with."""
    plain = _question("train", "qwen2.5-7b", 4, 2048)
    queries = [Query(4, 2048, layout=Layout(**{kind: 2})) for kind in ("tp", "pp", "cp")]
    wide = [dataclasses.replace(plain, query=query) for query in (*queries, Query(4, 2048, dp=2))]
    found = predict(profiles, [plain, *wide], fit=fit, allow_prior=True)
    said = "\n".join(found.notes)
    for words in ("tp2 was not measured", "all-reduces", "pipeline bubble", "ring attention", "dp2 was not"):
        assert words in said
    assert predict(profiles, [plain], fit=fit, allow_prior=True).notes == ()


def test_the_notes_say_which_answers_the_data_sheet_raised(profiles, fit, monkeypatch):
    """Raised answers rest on the sheet, not on the donors."""
    asked = [_question("decode", "qwen3-8b", batch, 2048) for batch in (1, 8)]
    assert "data sheet" not in "".join(predict(profiles, asked, fit=fit, allow_prior=True).notes)
    monkeypatch.setattr(prior, "roofline_s", lambda profile, places: np.full(len(places), 1e3))
    found = predict(profiles, asked, fit=fit, allow_prior=True)
    assert any("2 answers raised to the least seconds of h200_sxm" in note for note in found.notes)
    assert [row.time_s for row in found.rows] == [1e3, 1e3]

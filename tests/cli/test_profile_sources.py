"""`profile measure` and `profile import` as commands."""

from __future__ import annotations

import json

import pytest

import libra_plan
from libra_plan.profiles.catalog import load_profile
from libra_plan.profiles.measure.measure import MeasureReport
from libra_plan.profiles.measure.runner import Counts

TABLE = "batch,length,latency\n" + "".join(
    f"{batch},{length},{20 + 0.03 * batch * length:.4f}\n"
    for batch in (1, 4, 16)
    for length in (512, 2048, 8192)
)
FACTS = (
    "--gpu-class",
    "h200_sxm",
    "--model",
    "qwen2.5-7b",
    "--precision=bf16",
    "--framework",
    "ours",
    "--framework-version",
    "1",
    "--phase",
    "score",
    "--columns",
    "batch_sequences=batch,seq_len_tokens=length,time_s=latency:ms",
)


def test_import_writes_a_profile_the_planner_reads(call, tmp_path):
    """What users already have becomes a profile by one command."""
    (tmp_path / "t.csv").write_text(TABLE)
    words = ("profile", "import", "csv", tmp_path / "t.csv", "--out", tmp_path / "p", *FACTS)
    ran = call(
        *words, "--tokens-counted", "input", "--throughput-basis", "total", "--tp", "1", "--format", "json"
    )
    assert ran.code == 0, ran.err
    (folder,) = json.loads(ran.out)["folders"]
    assert len(load_profile(folder).points) == 9


def test_import_demands_what_the_file_does_not_say(call, tmp_path):
    """A fact is asked for by its flag, never guessed."""
    (tmp_path / "t.csv").write_text(TABLE)
    ran = call("profile", "import", "csv", tmp_path / "t.csv", "--out", tmp_path / "p")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "--gpu-class" in ran.err
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "needs a format"),
        (("csv",), "needs a format"),
        (("cvs", "t.csv", "--out", "p"), "no such format"),
        (("csv", "t.csv", "--out", "p", "--gpu-clas", "x"), "did you mean `--gpu-class`?"),
        (("csv", "t.csv", "--out", "p", "--tp"), "--tp has no value"),
        (("csv", "t.csv", "--out", "p", "--tp", "--pp", "1"), "--tp has no value"),
        (("csv", "t.csv", "--out", "p", "--tp", "1", "--tp", "2"), "given twice"),
        (("csv", "t.csv", "--out", "p", "--tp", "0"), "--tp is not understood"),
        (("csv", "t.csv", "other.csv", "--out", "p"), "not a flag"),
    ],
)
def test_import_mistakes_are_one_line(call, words, said):
    """Flags that no verb declares are checked all the same."""
    ran = call("profile", "import", *words)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert said in ran.err


def test_measure_hands_over_what_was_asked(call, tmp_path, monkeypatch):
    """The command is a thin cover: settings and plan must arrive, and the counts come back."""
    seen = {}

    def fake(model, out, phases, **more):
        seen.update(more, model=model, phases=phases)
        return MeasureReport((out / "x",), out / "journal.jsonl", {"x": Counts(ok=3, left=1)})

    monkeypatch.setattr(libra_plan, "measure_profile", fake)
    words = ("--phases", "score,train", "--budget-s", "60", "--repeats", "3", "--format", "json")
    ran = call("profile", "measure", "qwen2.5-0.5b", "--out", tmp_path, *words)
    assert ran.code == 0, ran.err
    assert (seen["model"], seen["phases"], seen["budget_s"]) == ("qwen2.5-0.5b", ["score", "train"], 60.0)
    assert seen["repeats"] == 3
    assert json.loads(ran.out)["counts"]["x"]["ok"] == 3
    assert "not every point was measured" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such-model",), "no-such-model"),
        (("qwen2.5-0.5b", "--phases", "sleep"), "unknown phase; got sleep"),
        (("qwen2.5-0.5b", "--train-precision", "fp4"), "fp32-master/bf16"),
        (("qwen2.5-0.5b", "--plan", "none.csv"), "none.csv"),
    ],
)
def test_measure_mistakes_are_one_line(call, tmp_path, words, said):
    """A wrong word must be told before a model is built."""
    ran = call("profile", "measure", *words, "--out", tmp_path)
    assert ran.code == 2, ran.err
    assert ran.err.count("\n") == 1
    assert said in ran.err

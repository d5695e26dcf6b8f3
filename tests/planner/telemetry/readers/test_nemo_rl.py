"""NeMo-RL's metrics: the same windows as from every other reader."""

from __future__ import annotations

import pytest
from reader_cases import read, role

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.readers import READERS, ReaderFacts
from libra_plan.profiles.importers.records import read_source


def test_nemo_rl_tokens_balance_with_what_its_page_prints():
    """Rate × GPUs × seconds of the printed row is 1.12 times batch × mean length, as known of it."""
    windows, rejected = read("nemo-rl", "nemo_rl.jsonl", gpus=16)
    actor = role(windows, "actor")
    assert actor[0].tokens == pytest.approx(1562 * 16 * 97.7)
    assert actor[0].tokens / (2048 * 1060) == pytest.approx(1.1248, abs=1e-3)
    assert (actor[1].waiting_s, actor[1].staleness, actor[1].queues) == (12.5, 1.5, {"experience": 160})
    assert role(windows, "rollout")[1].tokens == pytest.approx(0.75 * actor[1].tokens)
    assert rejected == ["no timing/train/total_step_time"]


def test_nemo_rl_with_samples_needs_no_gpus():
    """Samples × mean length are the tokens; without either the reader says what it lacks."""
    windows, _ = read("nemo-rl", "nemo_rl.jsonl", samples=2048)
    assert role(windows, "actor")[0].tokens == 2048 * 1060
    with pytest.raises(InputError, match="--gpus"):
        read("nemo-rl", "nemo_rl.jsonl")


def test_a_role_with_two_keys_takes_the_one_that_is_there(tmp_path):
    """NeMo-RL times log-probabilities under one name or another."""
    line = '{"timing/train/total_step_time": 10.0, "timing/train/policy_and_reference_logprobs": 4.0}\n'
    (tmp_path / "run.jsonl").write_text(line)
    source = read_source(tmp_path / "run.jsonl", (".jsonl",))
    (window,) = READERS["nemo-rl"].read(source, ReaderFacts(), [])
    assert (window.role, window.working_s) == ("reference", 4.0)

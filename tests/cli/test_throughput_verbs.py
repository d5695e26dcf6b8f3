"""`throughput` and `batch` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import libra_plan
from libra_plan.profiles.catalog import shipped_folder

SAMPLES = Path(__file__).parents[1] / "data" / "readers"


@pytest.fixture
def telemetry(tmp_path):
    """Record 10 minutes of two data-parallel ranks."""
    now_s = [0.0]
    for rank in range(2):
        now_s[0] = 0.0
        counter = libra_plan.counter(
            tmp_path / "telemetry",
            task="agent",
            role="actor",
            dp_rank=rank,
            rank=rank,
            clock=lambda: now_s[0],
            utc=lambda: now_s[0] + 1_700_000_040.0,
            environment={},
        )
        counter.shape(8, 1024)
        for _ in range(600):
            now_s[0] += 1.0
            counter.add(tokens=8192, samples=8, steps=1)
        counter.close()
    return tmp_path / "telemetry"


def test_what_a_role_gets_done_is_shown(call, telemetry):
    """Two ranks of 8,192 tokens a second are 16,384; steps are taken together."""
    ran = call("throughput", telemetry)
    assert ran.code == 0, ran.err
    row = ran.out.splitlines()[1].split()
    assert row[:7] == ["agent", "actor", "2", "0.167", "16,384", "16", "1"]
    assert ran.err == ""


def test_the_json_lists_every_stretch(call, telemetry):
    """Programs get numbers, unknown as null, and what was left out."""
    (telemetry / "torn.jsonl").write_text('{"t_s": 3')
    ran = call("throughput", telemetry, "--format", "json", "--every-s", 300)
    data = json.loads(ran.out)
    assert [each["tokens_per_s"] for each in data["stretches"]] == [16384.0] * len(data["stretches"])
    assert data["totals"][0]["idle"] is None
    assert data["left_out"][0]["where"].endswith("torn.jsonl:1")
    assert "torn.jsonl:1" in ran.err


def test_prometheus_gets_the_newest_rates(call, telemetry):
    """For a textfile collector."""
    ran = call("throughput", telemetry, "--format", "prometheus")
    assert 'libra_plan_tokens_per_second{role="actor",task="agent"} 16384.0' in ran.out


def test_tokens_counted_by_every_rank_are_warned_of(call, telemetry):
    """A053 on the user's own counters: what batch and length say is half of it."""
    for path in telemetry.iterdir():
        path.write_text(path.read_text().replace('"seq_len_tokens":1024', '"seq_len_tokens":512'))
    ran = call("throughput", telemetry)
    assert ran.code == 0
    assert "[tokens-unbalanced]" in ran.err
    assert "2 times over" in ran.err


@pytest.mark.parametrize(
    ("reader", "file", "more", "role"),
    [
        ("verl", "verl.jsonl", (), "rollout"),
        ("nemo-rl", "nemo_rl.jsonl", ("--gpus", 16), "actor"),
        ("slime", "slime.log", ("--gpus", 8), "actor"),
        ("vllm", "vllm.prom", (), "rollout"),
    ],
)
def test_metrics_of_others_are_read(call, reader, file, more, role):
    """Users need not touch their loops."""
    ran = call("throughput", SAMPLES / file, "--reader", reader, "--task", "agent", *more, "--format", "json")
    assert ran.code == 0, ran.err
    roles = {each["role"]: each for each in json.loads(ran.out)["totals"]}
    assert roles[role]["task"] == "agent"
    assert roles[role]["covered_s"] > 0


def test_a_recording_without_a_window_is_refused(call, tmp_path):
    """An empty table would look like a run in which nothing got done."""
    (tmp_path / "run.jsonl").write_text("nonsense\n")
    ran = call("throughput", tmp_path / "run.jsonl")
    assert ran.code == 2
    assert "run.jsonl:1" in ran.err


@pytest.fixture
def lengths(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("".join(f"{length}\n" for length in (512, 1024, 700, 1024) * 8))
    return path


def test_a_micro_batch_is_recommended_from_a_train_profile(call, lengths):
    """The rank's batch stays: size × accumulation is 32 in every row."""
    profile = shipped_folder() / "h200-qwen2.5-0.5b-train"
    words = ("--lengths", lengths, "--limit-mib", 60000, "--samples-per-rank", 32, "--current", 16)
    ran = call("batch", profile, *words, "--format", "json")
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    assert {row["size"] * row["accumulation"] for row in data["sizes"]} == {32}
    assert data["next"]["size"] == 16
    assert all(row["needed_mib"] * 1.1 <= 60000 for row in data["sizes"] if row["fits_with_margin"])
    assert "accumulation" in call("batch", profile, *words).out


def test_concurrency_is_recommended_from_a_decode_profile(call, lengths):
    """What no longer fits is left at once, for the largest that does."""
    profile = shipped_folder() / "h200-qwen2.5-0.5b-decode"
    ran = call(
        "batch", profile, "--lengths", lengths, "--limit-mib", 6000, "--current", 256, "--format", "json"
    )
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    (chosen,) = [row for row in data["sizes"] if row["size"] == data["next"]["size"]]
    assert data["next"]["changed"]
    assert chosen["needed_mib"] <= 6000
    assert chosen["size"] == max(row["size"] for row in data["sizes"] if row["fits"] and row["size"] < 256)


def test_what_a_batch_is_of_must_be_known(call, lengths):
    """Training without its batch, and a profile that has no batch to choose, are refused."""
    words = ("--lengths", lengths, "--limit-mib", 60000)
    assert "--samples-per-rank" in call("batch", shipped_folder() / "h200-qwen2.5-0.5b-train", *words).err
    ran = call("batch", shipped_folder() / "h200-qwen2.5-0.5b-score", *words)
    assert (ran.code, "phase score" in ran.err) == (2, True)

"""`throughput` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import libra_plan

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


def test_a_log_in_two_files_goes_on(call, tmp_path):
    """A restarted trainer begins a new file: its steps come after the first ones, not beside them."""
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text('{"timing_s/step": 50.0, "timing_s/update_actor": 10.0}\n' * 2)
    words = (tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--reader", "verl", "--format", "json")
    (total,) = json.loads(call("throughput", *words).out)["totals"]
    assert (total["covered_s"], total["steps_per_s"]) == pytest.approx((200.0, 0.02))


def test_a_recording_without_a_window_is_refused(call, tmp_path):
    """An empty table would look like a run in which nothing got done."""
    (tmp_path / "run.jsonl").write_text("nonsense\n")
    ran = call("throughput", tmp_path / "run.jsonl")
    assert ran.code == 2
    assert "run.jsonl:1" in ran.err


def test_pages_years_apart_are_left_out_and_not_added_up(call, tmp_path):
    """A server whose clock was set between two scrapes made a window of fifty years."""
    page = '# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{engine="0"} '
    pages = [
        f"# scrape {at}\n{page}{tokens}\n" for at, tokens in ((5, 1), (1_700_000_000, 9), (1_700_000_010, 29))
    ]
    (tmp_path / "a.prom").write_text("".join(pages))
    ran = call("throughput", "--reader", "vllm", tmp_path / "a.prom", "--format", "json")
    assert ran.code == 0
    (total,) = json.loads(ran.out)["totals"]
    assert total["tokens_per_s"] == 2.0
    assert "left out: rollout, to 1.7e+09 s: a window of 1.7e+09 s" in ran.err

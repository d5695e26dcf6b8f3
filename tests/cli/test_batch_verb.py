"""`batch` on the command line."""

from __future__ import annotations

import json

import msgspec
import pytest
from fake_nvml import Hands
from telemetry_cases import gpu, held_by, recorder, sample

from libra_plan.planner.telemetry.sample import ProcessUse
from libra_plan.profiles.catalog import shipped_folder


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


def test_memory_is_stated_once(call, lengths):
    """Neither no limit nor two of them."""
    profile = shipped_folder() / "h200-qwen2.5-0.5b-decode"
    for words in ((), ("--limit-mib", 6000, "--recording", lengths.parent)):
        ran = call("batch", profile, "--lengths", lengths, *words)
        assert (ran.code, "one of limit_mib (--limit-mib), recording (--recording)" in ran.err) == (2, True)


def record(folder, *, minutes, others_mib, seen=True):
    """Record a GPU whose main process holds 30,000 MiB beside others."""
    hands = Hands()
    made = recorder(folder, hands)
    processes = [ProcessUse(pid=1, used_mib=30000.0), ProcessUse(pid=2, used_mib=others_mib)]
    details = held_by(*processes) if seen else held_by()
    card = msgspec.structs.replace(gpu(details=details), memory_used_mib=30000.0 + others_mib)
    for at in range(minutes * 6):
        made.write(sample(10.0 * at, card))
    made.close()
    return folder


def test_a_recording_is_gone_through_window_by_window(call, lengths, tmp_path):
    """With room for all it rises a step after every third window; what others hold is not room."""
    profile = shipped_folder() / "h200-qwen2.5-0.5b-decode"
    telemetry = record(tmp_path / "telemetry", minutes=7, others_mib=20000.0)
    words = ("--lengths", lengths, "--recording", telemetry, "--window", 60, "--current", 1)
    ran = call("batch", profile, *words, "--format", "json")
    assert ran.code == 0, ran.err
    step = json.loads(ran.out)["next"]
    assert (step["windows"], step["changes"], step["size"]) == (7, 2, 3)
    assert step["limit_mib"] == 143771.0 - 20000.0
    assert "after 7 windows" in call("batch", profile, *words).out


def test_a_recording_that_does_not_see_processes_is_refused(call, lengths, tmp_path):
    """In a container the list is empty while the GPU is full (A044): nobody knows whose memory it is."""
    telemetry = record(tmp_path / "telemetry", minutes=1, others_mib=0.0, seen=False)
    profile = shipped_folder() / "h200-qwen2.5-0.5b-decode"
    ran = call("batch", profile, "--lengths", lengths, "--recording", telemetry)
    assert (ran.code, "whose memory is whose" in ran.err) == (2, True)


def test_a_serving_table_without_memory_is_bounded_by_the_models_shape(call, lengths):
    """It measured times alone, and how many sequences fit is asked of it all the same."""
    profile = shipped_folder() / "aic-h100-llama-3.1-8b-trtllm-1.0.0rc3-bf16"
    words = ("--lengths", lengths, "--limit-mib", 40000, "--current", 64, "--format", "json")
    ran = call("batch", profile, *words)
    assert ran.code == 0, ran.err
    needed = {row["size"]: row["needed_mib"] for row in json.loads(ran.out)["sizes"]}
    kv_mib = 2 * 32 * 8 * 128 * 2 / 2**20  # keys and values, layers, KV heads, their width, bytes
    assert needed[2] - needed[1] == pytest.approx(1024 * kv_mib)  # the two longest have 1,024 tokens
    assert needed[1] > 8.03e9 * 2 / 2**20  # the weights alone

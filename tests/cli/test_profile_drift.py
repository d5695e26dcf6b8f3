"""From recordings to a plan that knows better: `profile drift` and `solve --corrections`."""

from __future__ import annotations

import json

import pytest
import yaml
from cli_run import train_task, write_workload

import libra_plan


@pytest.fixture
def folder(tmp_path):
    """Write a folder with a task whose steps are measured places, so that they are inside the domain."""
    return write_workload(tmp_path / "work", [train_task("a", model="1.5b")])


def record(path, seconds, *, number=200):
    """Record steps of 16 sequences of 1024 tokens that take `seconds`."""
    now_s = [0.0]
    counter = libra_plan.counter(
        path,
        task="a",
        role="reward-model",
        clock=lambda: now_s[0],
        utc=lambda: now_s[0] + 1.7e9,
        environment={},
    )
    counter.shape(16, 1024)
    for _ in range(number):
        now_s[0] += seconds
        counter.add(tokens=16 * 1024, samples=16, steps=1)
    counter.close()
    return path


def stage_s(manifest):
    (task,) = manifest["spec"]["tasks"]
    return task["roles"][0]["stageTime"]["value"]


def test_a_slow_run_corrects_the_next_plan(call, folder, tmp_path):
    """The summary says which profile is off by how much; the plan in the same folder uses it and says so."""
    run = tmp_path / "run"
    plain = json.loads(call("solve", folder, "--gpus", 1, "--format", "json").out)
    telemetry = record(tmp_path / "telemetry", 0.9)
    run.mkdir()
    drift = call("profile", "drift", folder, telemetry, "--out", run / "corrections.json", "--format", "json")
    assert drift.code == 0, drift.err
    (row,) = json.loads(drift.out)
    assert (row["profile"], row["changes"]) == ("h200-qwen2.5-1.5b-train", 0)
    assert row["low"] <= row["factor"] <= row["high"]
    solved = call("solve", folder, "--gpus", 1, "--out", run, "--format", "json")
    assert solved.code == 0, solved.err
    corrected = json.loads(solved.out)
    assert stage_s(corrected) == pytest.approx(stage_s(plain) * row["factor"], rel=1e-6)
    assert "corrections.json" in corrected["spec"]["inputs"]["digests"]
    assert "corrected: a/reward-model ×" in solved.err
    assert (
        "corrected ×" in call("explain", folder, "--gpus", 1, "--corrections", run / "corrections.json").out
    )


def test_the_table_says_what_is_off(call, folder, tmp_path):
    """People read percent."""
    ran = call("profile", "drift", folder, record(tmp_path / "telemetry", 0.9))
    assert ran.code == 0, ran.err
    assert "%" in ran.out
    assert "h200-qwen2.5-1.5b-train" in ran.out


def test_a_plan_made_with_corrections_is_compared_without_them(call, folder, tmp_path):
    """Else a correction would be taken for the truth, and corrected back."""
    run, telemetry = tmp_path / "run", record(tmp_path / "telemetry", 0.9)
    run.mkdir()
    corrections = run / "corrections.json"
    call("profile", "drift", folder, telemetry, "--out", corrections)
    planned = json.loads(call("solve", folder, "--gpus", 1, "--out", run, "--format", "json").out)
    log = tmp_path / "verl.jsonl"
    step = {"timing_s/step": 100.0, "timing_s/update_actor": 2 * stage_s(planned)}
    log.write_text("".join(json.dumps(step) + "\n" for _ in range(10)))
    words = ("profile", "drift", folder, log, "--reader", "verl", "--task", "a", "--run", run)
    refused = call(*words)
    assert (refused.code, "--from" in refused.err) == (2, True)


def test_stage_times_of_a_trainer_s_log_are_compared_with_the_plan(call, tmp_path):
    """A user of verl who recorded nothing still learns how far the plan is off."""
    task = train_task("a", model="1.5b")
    task["roles"][0]["id"] = "actor"
    folder, run = write_workload(tmp_path / "work", [task]), tmp_path / "run"
    planned = json.loads(call("solve", folder, "--gpus", 1, "--out", run, "--format", "json").out)
    log = tmp_path / "verl.jsonl"
    step = {"timing_s/step": 100.0, "timing_s/update_actor": 1.3 * stage_s(planned)}
    log.write_text("".join(json.dumps(step) + "\n" for _ in range(10)))
    words = ("profile", "drift", folder, log, "--reader", "verl", "--task", "a", "--run", run)
    ran = call(*words, "--format", "json", "--out", tmp_path / "c.json")
    (row,) = json.loads(ran.out)
    assert (row["basis"], row["profile"]) == ("stage", None)
    assert row["factor"] == pytest.approx(1.3)
    again = call(
        "solve", folder, "--gpus", 1, "--out", tmp_path / "run2", "--corrections", tmp_path / "c.json"
    )
    assert "corrected: a/actor × 1.300" in again.err
    more = call(*words[:-1], tmp_path / "run2", "--from", tmp_path / "c.json", "--format", "json")
    assert more.code == 0, more.err


def test_roles_the_workload_has_not_are_told(call, folder, tmp_path):
    """A slip in the counter's task or role must not look like a run without drift."""
    data = yaml.safe_load((folder / "workload.yaml").read_text())
    data["tasks"][0]["id"] = "renamed"
    other = tmp_path / "other"
    other.mkdir()
    (other / "workload.yaml").write_text(yaml.safe_dump(data))
    telemetry = record(tmp_path / "telemetry", 0.9)
    ran = call("profile", "drift", other, telemetry)
    assert ran.code == 2
    assert "renamed/reward-model" in ran.err
    call("profile", "drift", folder, telemetry, "--out", tmp_path / "c.json")
    assert (
        "which the workload has not"
        in call("solve", other, "--gpus", 1, "--corrections", tmp_path / "c.json").err
    )

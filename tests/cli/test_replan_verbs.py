"""`replan`, `watch`, `history`, `replay` and `task` as their users run them."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from cli_run import environment, program, train_task, write_workload
from fake_nvml import Hands
from telemetry_cases import gpu, held_by, recorder, sample

from libra_plan.planner.launchers.store import read_current
from libra_plan.planner.telemetry.sample import ProcessUse


@pytest.fixture
def site(call, tmp_path: Path) -> Path:
    """Plan one task on two GPUs, and give the folder of the plan."""
    write_workload(tmp_path / "lab", [train_task("rm")])
    assert call("solve", tmp_path / "lab", "--gpus", 2, "--out", tmp_path / "run").code == 0
    return tmp_path


def words(site: Path, verb: str = "replan", gpus: int = 2) -> list[object]:
    return [verb, site / "lab", "--gpus", gpus, "--run", site / "run"]


def observations(site: Path, **more: object) -> Path:
    path = site / "observations.json"
    told = {"until_s": time.time(), "progress": [{"task": "rm", "steps": 9}],
            "checkpoints": [{"task": "rm", "age_s": 5}], **more}  # fmt: skip
    path.write_text(json.dumps(told))
    return path


def test_a_look_without_telemetry_keeps(call, site: Path) -> None:
    """The first look of a cron job that names no telemetry changes nothing and says why."""
    ran = call(*words(site), "--format", "json")
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    assert (said["look"], said["rung"], said["rule"], said["outcome"]) == (1, "keep", "telemetry", "kept")


def test_an_event_is_acted_on_and_explained(call, site: Path) -> None:
    """A GPU is gone from the inventory: the next generation does without, history says why, replay agrees."""
    write_workload(site / "lab", [train_task("rm"), train_task("late", weight=0.5)])
    assert call("solve", site / "lab", "--gpus", 2, "--out", site / "run").code == 0
    assert call(*words(site)).code == 0
    ran = call(*words(site, gpus=1))
    assert "[event] gpu-lost node0:1" in ran.out
    manifest = read_current(site / "run").manifest
    assert manifest is not None
    assert sum(len(node.gpus) for node in manifest.spec.nodes) == 1
    why = call("history", "--run", site / "run", "--why", 2)
    assert "event: gpu-lost node0:1" in why.out
    assert "applied" in call("history", "--run", site / "run", "--changes").out
    again = call("replay", "--run", site / "run")
    assert again.code == 0
    assert "2 looks derived again, 2 as recorded" in again.out
    careful = site / "careful.yaml"
    careful.write_text("every_s: 30")
    other = json.loads(call("replay", "--run", site / "run", "--policy", careful, "--format", "json").out)
    assert (other["looks"], other["otherwise"]) == (2, [])


def test_dry_run_writes_no_plan(call, site: Path) -> None:
    """The first week: decided, recorded, not applied."""
    call(*words(site))
    before = (site / "run" / "manifest.json").read_bytes()
    ran = call(*words(site, gpus=1), "--dry-run", "--format", "json")
    assert json.loads(ran.out)["outcome"] == "dry-run"
    assert (site / "run" / "manifest.json").read_bytes() == before


def test_tasks_are_added_all_or_none(call, site: Path) -> None:
    """One the plan has already would lose against the workload file's, in silence; no folder is made."""
    both = write_workload(site / "both", [train_task("new"), train_task("rm")]) / "workload.yaml"
    ran = call("task", "add", both, "--run", site / "run")
    assert ran.code == 2
    assert "there is such a task already; got rm" in ran.err
    listed = call("task", "list", "--run", site / "run", "--format", "json")
    assert json.loads(listed.out)["asked"] == []
    assert call("task", "add", both, "--run", site / "slip").code == 2
    assert call("task", "pause", "rm", "--run", site / "slip").code == 2
    assert not (site / "slip").exists()


def test_a_removed_task_is_added_and_not_paused(call, site: Path) -> None:
    """A pause would bring back what its user removed; adding it again is how to."""
    assert call("task", "remove", "rm", "--run", site / "run").code == 0
    assert call("task", "pause", "rm", "--run", site / "run").code == 2
    assert call("task", "add", site / "lab" / "workload.yaml", "--run", site / "run").code == 0


def test_tasks_are_steered(call, site: Path) -> None:
    """Add, weigh, pause, resume, remove: each shows in the next look or the list."""
    extra = write_workload(site / "more", [train_task("vip")]) / "workload.yaml"
    assert call("task", "add", extra, "--run", site / "run").code == 0
    call(*words(site))
    assert call("task", "priority", "vip", "--weight", 9, "--run", site / "run", "--reason", "demo").code == 0
    assert call("task", "pause", "rm", "--run", site / "run").code == 0
    ran = call(*words(site), "--observations", observations(site))
    assert "rm: pause" in ran.out
    assert "vip: start" in ran.out
    listed = json.loads(call("task", "list", "--run", site / "run", "--format", "json").out)
    assert {row["id"]: row["state"] for row in listed["asked"]} == {"rm": "paused", "vip": "added"}
    assert call("task", "resume", "rm", "--run", site / "run").code == 0
    assert call("task", "remove", "vip", "--run", site / "run").code == 0
    last = call(*words(site), "--observations", observations(site))
    assert "rm: start" in last.out
    manifest = read_current(site / "run").manifest
    assert manifest is not None
    assert [task.id for task in manifest.spec.tasks] == ["rm"]


def test_a_misspelt_task_is_refused(call, site: Path) -> None:
    """With the tasks that there are."""
    ran = call("task", "pause", "rmm", "--run", site / "run")
    assert ran.code == 2
    assert "allowed: rm" in ran.err


def test_a_second_run_leaves_with_5(call, site: Path) -> None:
    """A077: the lock is the kernel's: held it refuses, and a dead holder holds nothing."""
    with (site / "run" / ".replan.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ran = call(*words(site))
        assert ran.code == 5
        waited = call(*words(site), "--wait", 0.3)
        assert waited.code == 5
    assert call(*words(site)).code == 0


def test_a_damaged_record_is_refused_with_2(call, site: Path) -> None:
    """Never written over: the message names the file and the way out."""
    (site / "run" / "replan.db").write_bytes(b"gone wrong")
    ran = call(*words(site))
    assert ran.code == 2
    assert "move it away" in ran.err
    assert (site / "run" / "replan.db").read_bytes() == b"gone wrong"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rule: {gain_upp: 0.1}", "gain_upp"),
        ("rule: {gain_up: 7}", "rule.gain_up"),
        ("every_s: NaN", "every_s"),
    ],
)
def test_a_wrong_policy_names_its_key(call, site: Path, text: str, said: str) -> None:
    """A075: a policy that is misread moves GPUs; it is refused with file and key."""
    path = site / "policy.yaml"
    path.write_text(text)
    ran = call(*words(site), "--replan-policy", path)
    assert ran.code == 2
    assert said in ran.err


def test_an_empty_policy_is_all_defaults(call, site: Path) -> None:
    """A074: an empty file is no crash."""
    path = site / "policy.yaml"
    path.write_text("# nothing yet\n")
    assert call(*words(site), "--replan-policy", path).code == 0


def test_the_history_of_no_look_is_told(call, site: Path) -> None:
    """Asking first must not make a record."""
    ran = call("history", "--run", site / "run")
    assert ran.code == 2
    assert "no state yet" in ran.err
    assert not (site / "run" / "replan.db").exists()


def test_watch_looks_serves_and_rereads(site: Path) -> None:
    """Looks go on, /healthz and /metrics answer, SIGHUP reads the policy, SIGTERM ends it with 0."""
    policy = site / "policy.yaml"
    policy.write_text("every_s: 0.2\n")
    argv = [
        sys.executable,
        "-m",
        "libra_plan.cli",
        *words(site, "watch"),
        "--replan-policy",
        policy,
        "--port",
        "0",
    ]
    child = subprocess.Popen(
        list(map(str, argv)), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stderr is not None
        address = next(line for line in child.stderr if "serving" in line).split()[1].removesuffix("/metrics")
        assert wait_for(f"{address}/metrics", "libra_plan_looks_total{")
        assert wait_for(f"{address}/healthz", "look ")
        os.kill(child.pid, signal.SIGHUP)
        assert any("read anew" in line for line in child.stderr)
        child.terminate()
        assert child.wait(90) == 0
    finally:
        child.kill()
        child.wait()
        if child.stderr is not None:
            child.stderr.close()
    listed = program("history", "--run", site / "run", "--format", "json")
    assert len(json.loads(listed.out)) >= 1


def wait_for(url: str, text: str) -> bool:
    for _ in range(900):
        with urllib.request.urlopen(url, timeout=60) as answer:
            if text in answer.read().decode():
                return True
        time.sleep(0.1)
    return False


def test_watch_leaves_after_so_many_looks(call, site: Path) -> None:
    """For tests and for a supervised batch of looks."""
    policy = site / "policy.yaml"
    policy.write_text("every_s: 0.01\n")
    ran = call(*words(site, "watch"), "--replan-policy", policy, "--looks", 2)
    assert ran.code == 0, ran.err
    assert ran.out.count("keep [telemetry]") == 2


def test_times_are_utc_wherever_they_are_read(call, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A079: a record read in another time zone tells the same times, and says which they are."""
    call(*words(site))
    here = call("history", "--run", site / "run").out
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        there = call("history", "--run", site / "run").out
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    assert here == there
    assert "at (UTC)" in here


def test_a_micro_batch_that_fits_is_stepped_and_then_counts_as_what_runs(call, tmp_path: Path) -> None:
    """The cheapest change of all: the monitor says what is free, the profile what a larger one needs."""
    task = train_task("rm")
    task["roles"][0]["micro_batch_tokens"] = 2048
    write_workload(tmp_path / "lab", [task])
    (tmp_path / "lab" / "cluster.yaml").write_text(
        "schema_version: 1\nnodes:\n- {id: node0, gpu_class: h200_sxm, gpu_memory_mib: 143155, "
        "gpus: [{index: 0, uuid: GPU-0}, {index: 1, uuid: GPU-1}]}\n"
    )
    assert call("solve", tmp_path / "lab", "--out", tmp_path / "run").code == 0
    record = recorder(tmp_path / "monitor", Hands())
    cards = [gpu(at, details=held_by(ProcessUse(pid=7, used_mib=900.0))) for at in (0, 1)]
    record.write(sample(0.0, *cards))
    record.close()
    seen = (observations(tmp_path), "--monitor", tmp_path / "monitor", "--format", "json")
    said = [
        json.loads(call("replan", tmp_path / "lab", "--run", tmp_path / "run", "--observations", *seen).out)
        for _ in range(3)
    ]
    assert [(look["rung"], look["outcome"]) for look in said] == [
        ("keep", "kept"),
        ("step-batches", "applied"),
        ("keep", "kept"),
    ]
    (taken,) = json.loads((tmp_path / "run" / "batch_steps.json").read_text())
    assert (taken["task"], taken["before"], taken["after"]) == ("rm", 2048.0, 4096.0)
    assert "3 looks derived again, 3 as recorded" in call("replay", "--run", tmp_path / "run").out

"""`launch --detach`, `apply`, `status` and `stop` as their users see them, with real processes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import handover_cases
import pytest
from cli_run import program, train_task, write_workload
from live import end, free_ports, wait_for

from libra_plan.planner.runtime import host, processes
from libra_plan.planner.runtime import journal as r
from libra_plan.planner.runtime.journal import open_journal, read_journal
from libra_plan.planner.runtime.state import state_of
from libra_plan.profiles.switch_costs import STORE

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Write two tasks of tiny training loops, and put something in torchrun's place."""
    torchrun = tmp_path / "bin" / "torchrun"
    torchrun.parent.mkdir()
    fake = handover_cases.TRAINER.with_name("fake_torchrun.py")
    torchrun.write_text(f'#!/bin/sh\nexec {sys.executable} {fake} "$@"\n')
    torchrun.chmod(0o755)
    sources = Path(handover_cases.libra_plan.__file__).resolve().parent.parent
    monkeypatch.setenv("PATH", f"{torchrun.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(sources))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield write(tmp_path, ("a", "b"))
    journal = read_journal(tmp_path / "libra-plan-run")
    end(*(processes.marked_processes(state_of(journal).launch_id) if journal else ()))


def write(tmp_path, names, **lifecycle):
    tasks = []
    for name in names:
        task = train_task(name)
        task["roles"][0]["command"] = [str(handover_cases.TRAINER), str(tmp_path)]
        task["lifecycle"] = {
            "grace_s": 20.0,
            "checkpoint_dir": str(tmp_path / "checkpoints" / name),
            "reshardable": True,
            **lifecycle,
        }
        tasks.append(task)
    folder = write_workload(tmp_path / "work", tasks)
    if not (folder / "cluster.yaml").exists():  # later ports may be in use, by ranks of the first plan
        first, last = free_ports()
        (folder / "cluster.yaml").write_text(
            "schema_version: 1\nnodes:\n- id: node0\n  gpu_class: h200_sxm\n  gpu_count: 4\n"
            "  gpu_memory_mib: 143155\n  cpu_cores: 64\n  host_memory_mib: 1000000\n"
            f"  port_first: {first}\n  port_last: {last}\n"
        )
    return folder


def solve(call, folder, *words):
    ran = call("solve", folder, "--out", "run", *words)
    assert ran.code == 0, ran.err
    return ran


def test_from_the_first_start_to_the_last_stop(call, work, tmp_path):
    """What the manual says to type works in that order, and tells what comes of it."""
    first_to_last(call, work, tmp_path)


@pytest.mark.torch
@pytest.mark.slow
def test_the_same_under_torchrun_itself(call, work, tmp_path):
    """Its agents, ranks and signals are what hand-overs are made for."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    torchrun = tmp_path / "bin" / "torchrun"
    torchrun.write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
    first_to_last(call, work, tmp_path)


def first_to_last(call, work, tmp_path):
    """Type what the manual says."""
    solve(call, work)
    words = ("run", "--allow-unknown-gpus")
    dry = call("launch", "run", "--detach")
    assert dry.code == 0, dry.err
    assert "start:a" in dry.out
    assert "≥" in dry.out  # the start of ranks alone, as given for the GPU class
    assert not (tmp_path / "libra-plan-run").exists()
    started = call("launch", *words, "--detach", "--yes")
    assert started.code == 0, started.err
    assert "started: a/reward-model" in started.err

    ran = call("status")
    assert ran.code == 0, ran.out + ran.err
    assert "node0:" in ran.out
    assert call("launch", *words, "--yes").code == 6

    write(tmp_path, ("a", "b", "c"))
    solve(call, work)
    assert "resize" in actions(tmp_path)
    moved = call("apply", *words, "--yes", "--profiles", "store", "--format", "json")
    assert moved.code == 0, moved.err
    report = json.loads(moved.out)
    assert report["outcome"] == "new"
    assert {one["action"] for one in report["forecast"]} >= {"resize", "start"}
    assert (tmp_path / "store" / STORE).read_bytes() == b"".join(
        line + b"\n" for line in (tmp_path / "libra-plan-run" / STORE).read_bytes().splitlines()[2:]
    )
    looked = call("status", "--format", "json")
    assert json.loads(looked.out)["generation"] == 2

    stopped = call("stop", "--yes")
    assert stopped.code == 0, stopped.err
    assert "took: drain" in stopped.out
    looked = call("status")
    assert (looked.code, looked.out.startswith("nothing runs: stopped at 20")) == (0, True)
    again = call("stop", "--yes")
    assert (again.code, again.out) == (0, "nothing to do\n")
    assert "dry run" not in again.err


def actions(tmp_path):
    """List what the manifest has done to tasks."""
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    return [one["action"] for one in manifest["spec"]["transitions"]]


def test_a_move_that_fails_tells_why_and_what_runs(call, work, tmp_path):
    """Exit code 6, the reason and the log in one line, and what ran before runs again."""
    solve(call, work)
    words = ("run", "--allow-unknown-gpus")
    assert call("launch", *words, "--detach", "--yes").code == 0
    folder = write(tmp_path, ("a", "b"), grace_s=19.0)
    text = (folder / "workload.yaml").read_text()
    (folder / "workload.yaml").write_text(text.replace(f"- {tmp_path}\n", f"- {tmp_path}\n    - dies\n", 1))
    solve(call, folder)
    failed = call("apply", *words, "--yes")
    assert failed.code == 6
    last = failed.err.splitlines()[-1]
    assert last.startswith("libra-plan: the hand-over was called off, and what ran before runs again; got ")
    assert "it ended as soon as it was started: " in last
    assert ".log)" in last
    assert call("status").code == 0
    assert call("apply", "--yes").code == 2  # nothing is unfinished


def test_a_difference_has_an_exit_code_of_its_own(call, work, tmp_path):
    """A cron job asks no more than whether all is as planned."""
    solve(call, work)
    assert call("launch", "run", "--allow-unknown-gpus", "--detach", "--yes").code == 0
    state = state_of(read_journal(tmp_path / "libra-plan-run"))
    host.psutil.Process(state.processes[0].pid).kill()
    wait_for(lambda: call("status").code == 6)
    ran = call("status")
    assert "missing-role: " in ran.out
    assert "`libra-plan stop --yes`, then `libra-plan launch MANIFEST --detach --yes`" in ran.err
    words = ("apply", "run", "--allow-unknown-gpus")
    offered = call(*words)
    assert "/reward-model ended by itself" in offered.err
    assert "takes these steps" not in offered.err
    applied = call(*words, "--yes")
    assert applied.code == 6
    assert "/reward-model ended by itself, and no step starts it again" in applied.err
    assert call("stop", "--yes").code == 0
    assert call("launch", "run", "--allow-unknown-gpus", "--detach", "--yes").code == 0
    assert call("status").code == 0
    assert "what runs is not what was planned; got 1 difference, named above; " in ran.err


def test_a_hand_over_that_was_left_is_continued_or_called_off(call, work, tmp_path):
    """Both ways out are one command, and another plan has to wait."""
    solve(call, work)
    assert call("launch", "run", "--allow-unknown-gpus", "--detach", "--yes").code == 0
    journal = open_journal(tmp_path / "libra-plan-run", boot_clock=lambda: 0.0, utc_clock=lambda: 0.0)
    journal.append(r.Begun(target=None, generation=None, steps=(), force=False))
    write(tmp_path, ("a",))
    solve(call, work)
    refused = call("apply", "run", "--yes")
    assert refused.code == 6
    assert "another hand-over is unfinished" in refused.err
    called_off = call("apply", "--back", "--yes")
    assert called_off.code == 6
    assert "the hand-over was called off" in called_off.err
    assert call("status").code == 0
    assert call("apply", "run", "--back").code == 2


def test_recorded_moves_price_the_next_plan(call, work, tmp_path):
    """Five measured moves replace the given figures, and the user is told so."""
    solve(call, work)
    line = (
        '{"schema_version":1,"task":"a","action":"move","gpu_class":"h200_sxm","gpus_before":2,'
        '"gpus_after":2,"checkpoint_s":1,"drain_s":0.5,"save_s":0.5,"stop_s":1,"roles":[],'
        '"lost_s":12.5,"at":"2026-01-01T00:00:00+00:00"}\n'
    )
    (tmp_path / "run" / STORE).write_text(line * 4)
    assert "moving a" not in solve(call, work).err
    (tmp_path / "run" / STORE).write_text(line * 6)
    told = "moving a is priced at 12.5 s: measured, 90th percentile of 6 moves"
    assert told in solve(call, work).err
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert STORE in manifest["spec"]["inputs"]["digests"]
    (tmp_path / "run" / STORE).rename(tmp_path / "work" / STORE)
    assert told in solve(call, work).err
    (tmp_path / "work" / STORE).rename(tmp_path / "mine.jsonl")
    assert told in solve(call, work, "--switch-costs", "mine.jsonl").err
    ran = call("solve", work, "--out", "run", "--switch-costs", "none.jsonl")
    assert ran.code == 2
    assert "there are no recorded costs of moves" in ran.err


def test_a_folder_in_use_has_the_exit_code_of_a_lock(call, work, tmp_path):
    """A second supervisor must not act beside the first, nor beside a launch in the foreground."""
    from libra_plan.planner.launchers.store import lock_folder

    solve(call, work)
    (tmp_path / "libra-plan-run").mkdir()
    with lock_folder(tmp_path / "libra-plan-run"):
        assert call("apply", "run", "--yes").code == 5
        assert program("stop", "--yes", cwd=tmp_path).code == 5


def test_garbled_costs_of_moves_hide_no_hand_over(call, work, tmp_path):
    """What moves cost is an aside there; where a plan is priced from it, the line is refused."""
    assert call("solve", work, "--out", "run").code == 0
    folder = tmp_path / "libra-plan-run"
    folder.mkdir()
    (folder / STORE).write_text('{"schema_version": 1, "lost_s": -5}\n')
    ran = call("launch", "run", "--detach", "--yes", "--allow-unknown-gpus")
    assert ran.code == 0, ran.err
    assert "this is no record of a move" in ran.err
    assert "done: sha256:" in ran.err
    assert call("stop", "--yes").code == 0


def test_a_first_start_that_fails_tells_the_cause_once(call, work, tmp_path):
    """Nothing ran before, so nothing runs again; what the role said last is the reason."""
    text = (work / "workload.yaml").read_text()
    (work / "workload.yaml").write_text(text.replace(f"- {tmp_path}\n", f"- {tmp_path}\n    - dies\n", 1))
    solve(call, work)
    failed = call("launch", "run", "--allow-unknown-gpus", "--detach", "--yes")
    assert failed.code == 6
    assert "not every role could be started, so nothing runs; got start:" in failed.err
    assert failed.err.count("it ended as soon as it was started") == 1
    assert "runs again" not in failed.err
    assert failed.err.count("ValueError: no such model (see ") == 1


def test_a_stop_where_nothing_was_started_makes_nothing(call, tmp_path):
    """An empty folder stays empty, and --yes is not asked for again."""
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "none"):
        ran = call("stop", "--yes", "--folder", folder)
        assert (ran.code, ran.out) == (0, "nothing to do\n")
        assert "dry run" not in ran.err
    assert list((tmp_path / "empty").iterdir()) == []
    assert not (tmp_path / "none").exists()

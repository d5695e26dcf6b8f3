"""Each way in which what runs can differ from what was planned has a name."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import psutil
import pytest
from handover_cases import OPTIONS, case
from live import wait_for

from libra_plan.errors import InputError, LaunchError
from libra_plan.planner.runtime import host, processes
from libra_plan.planner.runtime import journal as r
from libra_plan.planner.runtime.apply import apply, stop
from libra_plan.planner.runtime.journal import open_journal
from libra_plan.planner.runtime.processes import START_MARK
from libra_plan.planner.runtime.status import status
from libra_plan.planner.telemetry.nvml import Card

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with case(tmp_path) as made:
        manifest = made.manifest({"a": {"actor": [0, 1]}, "b": {"rollout": [2]}})
        report = apply(manifest, folder=made.run, dry_run=False, first=True, settings=made.settings())
        assert report.outcome == "new", report.reason
        yield made


def no_cards():
    raise InputError(
        "the GPUs of this machine cannot be read",
        got="NVML: no driver",
        way_out="name the cluster with --gpus N",
    )


def look(lab, cards=no_cards):
    return status(lab.run, cards=cards, options=OPTIONS)


def said(lab, cards=no_cards):
    return [(one.kind, one.where) for one in look(lab, cards).differences]


def pid_of(lab, task):
    return next(one.pid for one in lab.state().processes if one.task == task)


def cards(*processes):
    """Make one card for each tuple of pids."""
    return lambda: tuple(
        Card(index, f"GPU-n0-{index}", "H200", 143_771.0, 0.0, tuple(pids), False)
        for index, pids in enumerate(processes)
    )


def marked(lab, **more):
    """Start a process that carries the mark of this run."""
    environment = {**os.environ, processes.MARK: lab.state().launch_id, "CUDA_VISIBLE_DEVICES": "", **more}
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environment)


def test_what_runs_as_planned_has_no_difference(lab):
    """And what cannot be read is said, not passed over."""
    report = look(lab)
    assert report.differences == ()
    assert [(one.task, one.role, one.gpus, one.pid) for one in report.roles] == [
        ("a", "actor", ("n0:0", "n0:1"), pid_of(lab, "a")),
        ("b", "rollout", ("n0:2",), pid_of(lab, "b")),
    ]
    assert "NVML: no driver" in report.notes[0]
    assert "--gpus N" not in report.notes[0]  # the way out of `solve`, of no use here
    as_planned = cards([pid_of(lab, "a")], [pid_of(lab, "a")], [pid_of(lab, "b")], [])
    assert look(lab, as_planned).differences == ()


def test_a_folder_in_which_nothing_was_started_has_no_plan(tmp_path):
    """It is no difference to run nothing where nothing is planned."""
    report = status(tmp_path, cards=no_cards)
    assert (report.generation, report.roles, report.differences) == (None, (), ())


def test_a_folder_in_which_nothing_ran_was_not_stopped(tmp_path):
    """A hand-over that never started a process leaves a journal, too."""
    journal = open_journal(tmp_path, boot_clock=lambda: 0.0, utc_clock=lambda: 0.0)
    journal.append(r.Opened(launch_id="x", node="n0", working_folder=str(tmp_path)))
    journal.append(r.Begun(target=None, generation=None, steps=(), force=False))
    journal.append(r.Finished(running=None, back=False))
    assert status(tmp_path, cards=no_cards).stopped_at is None


def test_a_role_that_has_ended_is_missing(lab):
    """Its GPUs are idle, and nobody told."""
    psutil.Process(pid_of(lab, "b")).kill()
    wait_for(lambda: said(lab))
    (difference,) = look(lab).differences
    assert (difference.kind, difference.where) == ("missing-role", "b/rollout")
    assert str(pid_of(lab, "b")) in difference.message


def test_a_process_on_a_gpu_of_another_role_is_named(lab):
    """Seen by the driver, whatever the environment says."""
    swapped = cards([pid_of(lab, "a")], [pid_of(lab, "b")], [], [])
    (difference,) = look(lab, swapped).differences
    assert (difference.kind, difference.where) == ("wrong-gpu", "b/rollout")
    assert difference.message == f"pid {pid_of(lab, 'b')} is on GPU 1; planned: 2"


def test_a_process_that_may_use_other_gpus_is_named(lab):
    """Seen in its environment, before it has touched any; all GPUs are other ones, too."""
    start = next(one.start for one in lab.state().processes if one.task == "b")
    process = marked(lab, CUDA_VISIBLE_DEVICES="2,3", **{START_MARK: str(start)})
    try:
        wait_for(lambda: said(lab))
        assert said(lab) == [("wrong-gpu", "b/rollout")]
        assert "may use GPUs 2,3; planned: 2" in look(lab).differences[0].message
    finally:
        process.kill()
        process.wait()


def test_processes_that_nobody_planned_are_named(lab):
    """One with our mark that is not on record, and a stranger on a planned GPU."""
    process = marked(lab, **{START_MARK: "99"})
    try:
        wait_for(lambda: said(lab))
        strangers = cards([pid_of(lab, "a"), 4_000_001], [], [], [4_000_002])
        assert said(lab, strangers) == [("extra-process", "host"), ("extra-process", "GPU 0")]
        assert "is on the GPU of a/actor" in look(lab, strangers).differences[1].message
    finally:
        process.kill()
        process.wait()


def test_ranks_that_have_no_process_are_named(lab):
    """One rank of two is gone, and the other waits for it in a collective."""
    start = next(one.start for one in lab.state().processes if one.task == "a")
    process = marked(lab, RANK="1", CUDA_VISIBLE_DEVICES="1", **{START_MARK: str(start)})
    try:
        wait_for(lambda: said(lab))
        (difference,) = look(lab).differences
        assert (difference.kind, difference.message) == ("missing-rank", "no process has rank 0")
    finally:
        process.kill()
        process.wait()


def test_an_unfinished_hand_over_is_a_difference(lab):
    """A supervisor that was killed leaves something in between."""
    journal = open_journal(lab.run, boot_clock=lambda: 0.0, utc_clock=lambda: 0.0)
    journal.append(r.Begun(target=None, generation=None, steps=(), force=False))
    assert said(lab) == [("unfinished", "hand-over")]
    journal.append(r.Back(reason="why", steps=(), force=False))
    journal.append(r.Stuck(reason="GPU n0:0 busy"))
    assert "the way back failed (GPU n0:0 busy)" in look(lab).unfinished


def test_a_plan_with_another_generation_is_a_difference(lab):
    """A role of an older generation meets under another id."""
    journal = open_journal(lab.run, boot_clock=lambda: 0.0, utc_clock=lambda: 0.0)
    journal.path.unlink()
    again = open_journal(lab.run, boot_clock=lambda: 0.0, utc_clock=lambda: 0.0)
    for entry in journal.entries:
        one = entry.record
        older = isinstance(one, r.Intent) and one.task == "a"
        again.append(msgspec.structs.replace(one, generation=9) if older else one)
    assert said(lab) == [("wrong-generation", "a/actor")]


def test_roles_of_another_host_are_said_to_be_out_of_sight(lab, monkeypatch):
    """Who looks from a login node must not read that all has ended and nothing more."""
    assert look(lab).notes == (look(lab).notes[0],)
    monkeypatch.setattr("socket.gethostname", lambda: "login")
    here = lab.state().processes[0].host
    assert f"roles were started on {here} and cannot be seen from here" in look(lab).notes
    with pytest.raises(LaunchError, match="on another host"):
        stop(folder=lab.run, settings=lab.settings())


def test_a_launch_in_the_foreground_is_seen_while_it_is_at_work(tmp_path):
    """Who looks from another terminal must not be told that nothing was started, nor be offered a start."""
    with subprocess.Popen(["sleep", "60"]) as role:
        try:
            agent = host.AgentState(
                task="a",
                role="actor",
                generation=1,
                pid=role.pid,
                start_time=processes.start_time_of(role.pid),
                log="a.log",
            )
            own = psutil.Process()
            here = host.LaunchState(
                launch_id=f"{own.pid}-{own.create_time():.2f}-1.0",
                manifest_digest="sha256:0",
                generation=1,
                node="n0",
                agents=(agent,),
            )
            host.write_state(tmp_path, here)
            seen = status(tmp_path, cards=no_cards)
            assert (seen.foreground, seen.differences) == (own.pid, ())
            with pytest.raises(LaunchError, match="still run"):
                stop(folder=tmp_path)
            host.write_state(tmp_path, msgspec.structs.replace(here, launch_id=f"{own.pid}-1.00-1.0"))
            seen = status(tmp_path, cards=no_cards)
            assert seen.foreground is None
            assert [(one.kind, one.where) for one in seen.differences] == [("extra-process", "a/actor")]
        finally:
            role.kill()
    assert status(tmp_path, cards=no_cards).differences == ()

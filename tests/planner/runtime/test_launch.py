"""A launch starts what the manifest says, stops what belongs together, and touches nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import plans
import psutil
import pytest
from live import end, wait_for, words_of

import libra_plan
from libra_plan.errors import InputError, LaunchError, LockedError
from libra_plan.planner.launchers.document import manifest_to_json
from libra_plan.planner.launchers.store import lock_folder
from libra_plan.planner.plan import CpuShare
from libra_plan.planner.runtime import host, processes
from libra_plan.planner.runtime.host import read_state
from libra_plan.planner.runtime.launch import AgentExit, launch
from libra_plan.profiles.schema import LifecycleSpec

DROPS_A_HANDLE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def cpu_manifest(script, roles=("a",), tasks=("t",), grace_s=5.0):
    """Run a Python program as CPU-only roles, which need no torchrun: one process each."""
    lifecycle = LifecycleSpec(grace_s=grace_s)
    running = [plans.running(task, cpu=[CpuShare(role, "n0", 1) for role in roles]) for task in tasks]
    return plans.manifest_of(
        plans.cluster(1), *running, command=(sys.executable, "-c", script), lifecycle=lifecycle
    )


def start(manifest, folder, **more):
    return launch(manifest, folder=folder, dry_run=False, **more)


def test_a_dry_run_is_the_default_and_starts_nothing(tmp_path):
    """Looking must be safe."""
    report = launch(plans.single_node(), folder=tmp_path / "run")
    assert [(agent.role, agent.gpus) for agent in report.agents] == [
        ("actor", (0, 1)),
        ("rollout", (2, 3, 4, 5, 6, 7)),
        ("env", ()),
    ]
    assert report.exits == ()
    assert not (tmp_path / "run").exists()


def test_only_this_node_and_the_tasks_asked_for(tmp_path):
    """The same manifest is launched on every node."""
    assert [agent.node for agent in launch(plans.two_nodes(), node="n1").agents] == ["n1"]
    report = launch(plans.two_nodes(), node="n2", tasks=["small"])
    assert [agent.role for agent in report.agents] == ["actor", "rollout"]
    with pytest.raises(InputError, match="no such task"):
        launch(plans.two_nodes(), node="n2", tasks=["smal"])


def test_gpus_nobody_can_read_are_not_assumed_free(tmp_path):
    """Without NVML the launch says so and starts nothing."""
    with pytest.raises(LaunchError, match="not known to be free"):
        start(plans.single_node(), tmp_path)
    assert read_state(tmp_path) is None


def test_a_folder_in_use_is_refused(tmp_path):
    """Two launches would overwrite each other's record."""
    with lock_folder(tmp_path), pytest.raises(LockedError):
        start(cpu_manifest("pass"), tmp_path)


def test_roles_run_with_their_environment_and_are_recorded(tmp_path):
    """Output goes to the log, and the record names process, start and generation."""
    keys = ("LIBRA_PLAN_ROLE", "CUDA_VISIBLE_DEVICES", "PET_NNODES")
    script = f"import os; print(*(os.environ.get(key) for key in {keys}))"
    environment = {**os.environ, "PET_NNODES": "9"}
    report = start(cpu_manifest(script, roles=("a", "b")), tmp_path, environment=environment)
    assert report.succeeded
    assert [(one.role, one.status) for one in report.exits] in ([("a", 0), ("b", 0)], [("b", 0), ("a", 0)])
    assert (tmp_path / "logs/t/a/g000001.log").read_text() == "a  None\n"
    state = read_state(tmp_path)
    assert {(one.role, one.generation, one.status) for one in state.agents} == {("a", 1, 0), ("b", 1, 0)}
    assert all(one.start_time > 0 and one.pid > 0 for one in state.agents)


def test_a_failed_role_stops_its_task_and_no_other(tmp_path):
    """Half a task holds GPUs for nothing; another task is none of its business."""
    script = (
        "import os, sys, time\n"
        "if os.environ['LIBRA_PLAN_TASK'] == 'other': time.sleep(1.5); sys.exit(0)\n"
        "if os.environ['LIBRA_PLAN_ROLE'] == 'a': time.sleep(0.5); sys.exit(3)\n"
        "time.sleep(60)\n"
    )
    report = start(cpu_manifest(script, roles=("a", "b"), tasks=("t", "other")), tmp_path)
    statuses = {(one.task, one.role): one.status for one in report.exits}
    assert statuses == {("t", "a"): 3, ("t", "b"): -signal.SIGTERM, ("other", "a"): 0, ("other", "b"): 0}
    assert report.survivors == ()
    assert not report.succeeded


def test_programs_that_are_not_there_are_refused_before_anything_starts(tmp_path):
    """A task must not hold GPUs for a role that never comes."""
    task = plans.running("t", cpu=[CpuShare("a", "n0", 1)])
    with pytest.raises(LaunchError, match="/no/such/program cannot be run"):
        start(plans.manifest_of(plans.cluster(1), task, command=("/no/such/program",)), tmp_path)
    assert read_state(tmp_path) is None


def test_torchrun_that_is_not_on_path_is_refused_with_what_to_do(tmp_path, monkeypatch):
    """It is the first thing that goes wrong where the environment was not activated."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    environment = {**os.environ, "PATH": str(tmp_path)}
    with pytest.raises(LaunchError) as caught:
        start(plans.single_node(), tmp_path / "run", environment=environment, allow_unknown_gpus=True)
    assert caught.value.what.startswith("torchrun is not on PATH")
    assert caught.value.got == "grpo/actor, grpo/rollout"
    assert "pip install torch" in caught.value.way_out
    assert read_state(tmp_path / "run") is None


def test_a_program_that_torchrun_would_start_is_looked_for_too(tmp_path, monkeypatch):
    """Otherwise torchrun is found, and every rank fails."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "torchrun").write_text("#!/bin/sh\n")
    (tmp_path / "torchrun").chmod(0o755)
    environment = {**os.environ, "PATH": str(tmp_path)}
    task = plans.running("t", [plans.role("train", [["n0:0"]])])
    manifest = plans.manifest_of(plans.cluster(1), task, command=("no-such-trainer", "--x"))
    with pytest.raises(LaunchError, match="no-such-trainer is not on PATH"):
        start(manifest, tmp_path / "run", environment=environment, allow_unknown_gpus=True)


def test_a_program_that_cannot_be_run_is_told_in_its_log_and_stops_its_task(tmp_path):
    """Who looks into the log of a role that never ran must find out why."""
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF and nothing more")
    broken.chmod(0o755)
    cpu = [CpuShare(name, "n0", 1) for name in ("a", "b")]
    manifest = plans.manifest_of(plans.cluster(1), plans.running("t", cpu=cpu), command=(str(broken),))
    report = start(manifest, tmp_path / "run")
    assert [one.status for one in report.exits] == [127, None]
    assert [one.outcome for one in report.exits][1] == "not started"
    text = (tmp_path / "run/logs/t/a/g000001.log").read_text()
    assert text.startswith(f"libra-plan: {broken} cannot be started: ")


def test_a_word_that_no_process_can_be_given_is_told_like_it(tmp_path):
    """Python raises another error for it than the system does, and the other roles ran on unwatched."""
    task = plans.running("t", cpu=[CpuShare("a", "n0", 1)])
    manifest = plans.manifest_of(plans.cluster(1), task, command=(sys.executable, "x\0y"))
    report = start(manifest, tmp_path / "run")
    assert [one.status for one in report.exits] == [127]
    assert "embedded null byte" in report.exits[0].note


def test_each_start_and_end_is_told_as_it_comes(tmp_path):
    """A launch runs for days; who waits must see what runs."""
    heard = []
    script = (
        "import os, sys, time; time.sleep(60 if os.environ['LIBRA_PLAN_ROLE'] == 'b' else 0.3); sys.exit(1)"
    )
    report = start(cpu_manifest(script, roles=("a", "b")), tmp_path, tell=heard.append)
    assert [(type(one).__name__, one.role) for one in heard] == [
        ("AgentState", "a"),
        ("AgentState", "b"),
        ("AgentExit", "a"),
        ("AgentExit", "b"),
    ]
    assert [one.outcome for one in report.exits] == ["status 1", "stopped (status -15)"]


@DROPS_A_HANDLE
def test_what_does_not_stop_is_reported_and_not_killed(tmp_path):
    """The user decides about a process that ignores its signal; the next launch refuses to join it."""
    script = (
        "import os, pathlib, signal, sys, time\n"
        f"deaf = pathlib.Path({str(tmp_path / 'deaf')!r})\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while os.environ['LIBRA_PLAN_ROLE'] == 'a':\n"
        "    if deaf.exists(): sys.exit(1)\n"
        "    time.sleep(0.02)\n"
        "deaf.touch(); time.sleep(120)\n"
    )
    manifest = cpu_manifest(script, roles=("a", "b"), grace_s=0.5)
    report = start(manifest, tmp_path)
    (survivor,) = report.survivors
    process = psutil.Process(survivor.pid)
    try:
        assert {one.role: one.status for one in report.exits} == {"a": 1, "b": None}
        assert process.is_running()
        with pytest.raises(LaunchError, match="generation 1 still run"):
            start(manifest, tmp_path)
    finally:
        end(process)


def test_workers_of_a_lost_agent_are_told_to_stop(tmp_path):
    """An agent that is killed leaves its workers behind; they are ours and get the signal."""
    script = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "time.sleep(0.5); os.kill(os.getpid(), 9)\n"
    )
    report = start(cpu_manifest(script), tmp_path)
    assert [one.status for one in report.exits] == [-signal.SIGKILL]
    assert report.survivors == ()


@DROPS_A_HANDLE
def test_a_launch_that_cannot_record_a_role_stops_it(tmp_path, monkeypatch):
    """A full disk must not leave roles on the GPUs that no record names."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(host, "write_state", full)
    mark = f"unrecorded-{os.getpid()}"
    with pytest.raises(OSError, match="No space left"):
        start(cpu_manifest(f"import time; time.sleep(60)  # {mark}"), tmp_path)
    wait_for(lambda: not any(mark in words for words in words_of(psutil.process_iter())))


def test_processes_of_others_are_left_alone(tmp_path):
    """The launch never ends what it did not start, not even a process of the same name."""
    script = "import time; time.sleep(60)"
    environment = {**os.environ, "LIBRA_PLAN_TASK": "t", "LIBRA_PLAN_ROLE": "a"}
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as bystander:
        try:
            assert start(cpu_manifest("import sys; sys.exit(1)"), tmp_path).exits[0].status == 1
            assert bystander.poll() is None
        finally:
            bystander.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_what_was_started(tmp_path, number):
    """Neither Ctrl-C on the launch nor a lost terminal may leave roles running."""

    def poke():
        wait_for(lambda: (tmp_path / "launch.json").exists() and read_state(tmp_path).agents)
        os.kill(os.getpid(), number)

    poker = threading.Thread(target=poke)
    own = signal.signal(number, signal.default_int_handler)  # under nohup SIGHUP would be ignored here
    before = signal.getsignal(number)
    poker.start()
    try:
        report = start(cpu_manifest("import time; time.sleep(60)"), tmp_path)
        poker.join()
        after = signal.getsignal(number)
    finally:
        signal.signal(number, own)
    assert report.interrupted == number.name
    assert [one.status for one in report.exits] == [-signal.SIGTERM]
    assert report.stopped_as_asked
    assert not replace(report, exits=(*report.exits, AgentExit("t", "b", 1, 1))).stopped_as_asked
    assert not replace(report, interrupted=None).stopped_as_asked
    assert after is before


@DROPS_A_HANDLE
def test_two_signals_at_once_stop_what_was_started_too(tmp_path):
    """Twice Ctrl-C within one look at the roles abandoned them without ever telling them to stop."""

    def poke():
        wait_for(lambda: (tmp_path / "launch.json").exists() and read_state(tmp_path).agents)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    poker = threading.Thread(target=poke)
    poker.start()
    report = start(cpu_manifest("import time; time.sleep(60)"), tmp_path)
    poker.join()
    (agent,) = read_state(tmp_path).agents
    wait_for(lambda: not processes.still_runs(agent.pid, agent.start_time))
    assert report.interrupted in ("SIGINT", "SIGTERM")


def test_a_launch_killed_outright_leaves_a_record_to_find_its_roles_by(tmp_path):
    """After a crash of the launch itself the next one must refuse to share the GPUs."""
    path = tmp_path / "manifest.json"
    path.write_text(manifest_to_json(cpu_manifest("import time; time.sleep(60)")), encoding="utf-8")
    code = (
        "import sys; from pathlib import Path; from libra_plan.planner.runtime.launch import launch;"
        "from libra_plan.planner.launchers.document import read_manifest;"
        "launch(read_manifest(Path(sys.argv[1])), folder=Path(sys.argv[2]), dry_run=False)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(libra_plan.__file__).parent.parent)}
    folder = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", code, str(path), str(folder)], env=environment) as killed:
        wait_for(lambda: (folder / "launch.json").exists() and read_state(folder).agents)
        killed.kill()
    (agent,) = read_state(folder).agents
    try:
        with pytest.raises(LaunchError, match=f"pid {agent.pid}"):
            start(cpu_manifest("pass"), folder)
    finally:
        end(psutil.Process(agent.pid))


def test_a_launch_killed_before_it_recorded_a_role_finds_it_by_its_mark(tmp_path):
    """The launch is on record before its first role exists, so no role can run unnoticed."""
    path = tmp_path / "manifest.json"
    path.write_text(manifest_to_json(cpu_manifest("import time; time.sleep(60)")), encoding="utf-8")
    code = (
        "import os, signal, sys; from pathlib import Path; from libra_plan.planner.runtime import launch;"
        "from libra_plan.planner.launchers.document import read_manifest;"
        "launch._ForegroundRun._record = lambda *_: os.kill(os.getpid(), signal.SIGKILL);"
        "launch.launch(read_manifest(Path(sys.argv[1])), folder=Path(sys.argv[2]), dry_run=False)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(libra_plan.__file__).parent.parent)}
    folder = tmp_path / "run"
    done = subprocess.run([sys.executable, "-c", code, str(path), str(folder)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    state = read_state(folder)
    assert state.agents == ()
    wait_for(lambda: processes.marked_processes(state.launch_id))
    (left,) = processes.marked_processes(state.launch_id)
    try:
        with pytest.raises(LaunchError, match=rf"a worker \(pid {left.pid}\)"):
            start(cpu_manifest("pass"), folder)
    finally:
        end(left)

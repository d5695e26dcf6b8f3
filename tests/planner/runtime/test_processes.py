"""A role starts in two steps, and between them it does not run."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest
from live import PATIENCE_S, end, wait_for

from libra_plan.planner.runtime import processes
from libra_plan.planner.runtime.processes import (
    MARK,
    START_MARK,
    start_time_of,
    start_waiting,
    still_runs,
    telling_line,
)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def hold(tmp_path, *argv, **environment):
    return start_waiting(argv, {**os.environ, **environment}, tmp_path / "logs" / "log", str(tmp_path))


def python(script):
    return sys.executable, "-c", script


def test_it_becomes_the_role_when_it_is_released_and_not_before(tmp_path):
    """Its pid is on record before it does anything; folder, environment, streams are the role's."""
    script = (
        "import os, sys, time; print(os.getcwd(), os.environ['X'], sys.stdin.read() == '')\n"
        "print(os.getsid(0) == os.getpid(), flush=True); time.sleep(60)"
    )
    held = hold(tmp_path, *python(script), X="1")
    wait_for(lambda: psutil.Process(held.pid).cmdline()[1:3] == ["-I", "-S"])
    assert not processes.has_become_its_role(held.pid)
    assert (tmp_path / "logs" / "log").read_text() == ""
    held.release()
    wait_for(lambda: (tmp_path / "logs" / "log").read_text().count("\n") == 2)
    assert processes.has_become_its_role(held.pid)
    assert still_runs(held.pid, held.start_time)
    assert (tmp_path / "logs" / "log").read_text() == f"{tmp_path} 1 True\nTrue\n"
    held.process.kill()
    held.process.wait()


def test_it_ends_with_who_would_have_released_it(tmp_path):
    """A supervisor that dies leaves nothing that is not on record."""
    held = hold(tmp_path, *python(f"open({str(tmp_path / 'ran')!r}, 'w')"))
    held.process.stdin.close()
    assert held.process.wait(timeout=PATIENCE_S) == 0
    assert not (tmp_path / "ran").exists()


def test_a_program_that_cannot_be_run_says_so_in_its_log(tmp_path):
    """Who looks into the log of a role that never ran must find out why."""
    held = hold(tmp_path, "/no/such/program")
    held.release()
    assert held.process.wait(timeout=PATIENCE_S) == 127
    text = (tmp_path / "logs" / "log").read_text()
    assert text == "libra-plan: /no/such/program cannot be started: No such file or directory\n"


def test_starts_are_found_by_their_mark_in_any_descendant(tmp_path):
    """A worker whose agent is gone still belongs to its start."""
    child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    identity = f"test-{os.getpid()}"
    held = hold(tmp_path, *python(child), **{MARK: identity, START_MARK: "7"})
    wait_for(lambda: processes.starts_of(identity) == {7})
    held.release()
    held.process.wait(timeout=PATIENCE_S)
    assert processes.starts_of(identity) == {7}
    processes.kill(identity, "")  # another task's: untouched
    assert processes.starts_of(identity) == {7}
    end(*processes.marked_processes(identity))
    wait_for(lambda: processes.starts_of(identity) == set())


def test_a_signal_goes_to_agents_and_to_workers_without_one(tmp_path):
    """Agents tell their own workers; a second signal would cut their saving short."""
    identity = f"signals-{os.getpid()}"
    environment = {**os.environ, MARK: identity, "LIBRA_PLAN_TASK": "t"}
    listener = (
        "import os, signal, subprocess, sys, time\n"
        "def told(*_): open(f'{sys.argv[1]}/{os.getpid()}', 'w').close(); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, told)\n"
        "if sys.argv[2:]: subprocess.Popen([sys.executable, '-c', open(sys.argv[2]).read(), sys.argv[1]])\n"
        "open(f'{sys.argv[1]}/ready-{os.getpid()}', 'w'); time.sleep(60)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(listener)
    words = [sys.executable, "-c", listener, str(tmp_path)]
    agent = subprocess.Popen([*words, str(script)], env=environment)
    orphan = subprocess.Popen(words, env=environment)
    try:
        wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == 3)
        started = start_time_of(agent.pid)
        processes.tell_to_stop(identity, "t", [(agent.pid, started)], processes.signal.SIGTERM)
        assert agent.wait(PATIENCE_S) == orphan.wait(PATIENCE_S) == 0
        told = {path.name for path in tmp_path.iterdir() if path.name.isdigit()}
        assert told == {str(agent.pid), str(orphan.pid)}
    finally:
        processes.kill(identity, "t")


TRACEBACK = (
    'Traceback (most recent call last):\n  File "x.py", line 1\n'
    "ModuleNotFoundError: No module named 'trl'\n"
)
TORCHRUN = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "=====\ntrain.py FAILED\n-----\nexitcode  : 1 (pid: 7)\n=====\n"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step 1\nout of patience\n\n", "out of patience"),
        (TRACEBACK, "ModuleNotFoundError: No module named 'trl'"),
        (TRACEBACK + TORCHRUN, "ModuleNotFoundError: No module named 'trl'"),
        ("[rank0]: torch.OutOfMemoryError: CUDA out of memory\nbye\n", "[rank0]: torch.OutOfMemoryError"),
        ("=====\n", ""),
    ],
)
def test_the_error_of_the_role_is_told_and_not_what_torchrun_adds(tmp_path, text, said):
    """The last lines of torchrun say only that a rank failed, which everybody knows by then."""
    (tmp_path / "log").write_text(text)
    found = telling_line(tmp_path / "log")
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_a_log_that_cannot_be_read_tells_nothing(tmp_path):
    """Why a role ended must not be hidden by how its log is kept."""
    assert telling_line(tmp_path / "none") == ""


def test_a_clock_that_is_set_makes_no_other_process_of_one(monkeypatch):
    """A078: a node that got its time late took every role for gone, and stopped it without a checkpoint."""
    started = start_time_of(os.getpid())
    real = psutil.boot_time()
    monkeypatch.setattr("psutil.boot_time", lambda: real + 3600.0)
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: real + 3600.0)
    monkeypatch.setattr("psutil.Process.create_time", lambda _: real + 3600.0)
    assert still_runs(os.getpid(), started)
    assert 0.0 < started <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_process_that_has_ended_runs_no_more_and_had_a_start_time():
    """A role may end before it is on record; until its parent asks for its status it is there."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        started = start_time_of(process.pid)
        assert started > 0.0
        assert not still_runs(process.pid, started)
    assert start_time_of(2**22 + 1) is None

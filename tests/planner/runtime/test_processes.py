"""A role starts in two steps, and between them it does not run."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest
from live import PATIENCE_S, end, wait_for

from libra_plan.planner.runtime import processes
from libra_plan.planner.runtime.host import MARK, start_time_of, still_runs
from libra_plan.planner.runtime.processes import START_MARK, start_held

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def hold(tmp_path, *argv, **environment):
    return start_held(argv, {**os.environ, **environment}, tmp_path / "logs" / "log", str(tmp_path))


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

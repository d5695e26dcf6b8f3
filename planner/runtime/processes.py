"""Start roles that outlive their supervisor, find them again, and stop them.

A role is started in two steps: a small process that waits, and, once it is on record, the word to
become the role. A supervisor that dies in between takes the word with it, and the process ends. So
no role ever runs that is not on record.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from libra_plan.planner.runtime.host import marked_processes, start_time_of, still_runs
from libra_plan.planner.runtime.state import Process

__all__ = [
    "START_MARK",
    "Held",
    "has_become_its_role",
    "kill",
    "live_starts",
    "start_held",
    "starts_of",
    "status_of",
    "tell_to_stop",
]

START_MARK = "LIBRA_PLAN_START"  # in the environment of every process: which start it descends from

_HELD = "libra-plan holds a role"
_WAIT = f"""# {_HELD}
import os, signal, sys
if os.read(0, 1) == b"g":
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as problem:
        said = f"libra-plan: {{sys.argv[1]}} cannot be started: {{problem.strerror}}"
        print(said, file=sys.stderr, flush=True)
        os._exit(127)
"""
# Handles of released children, by pid and start time: one that is dropped complains that its process runs
_children: dict[tuple[int, float], subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Held:
    """A process that waits for the word to become a role; pid and start time (s since boot) name it."""

    process: subprocess.Popen[bytes]
    start_time: float

    @property
    def pid(self) -> int:
        """Give its number, which the role keeps."""
        return self.process.pid

    def release(self) -> None:
        """Let it become the role."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it is gone; who waits for it will see
            self.process.stdin.write(b"g")
            self.process.stdin.flush()
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        _children[self.pid, self.start_time] = self.process


def start_held(argv: Sequence[str], environment: Mapping[str, str], log: Path, working_folder: str) -> Held:
    """Start a process, in a session of its own, that waits to be released into a role."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            (sys.executable, "-I", "-S", "-c", _WAIT, *argv),
            env=dict(environment),
            cwd=working_folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Held(process, start_time_of(process.pid) or 0.0)


def live_starts(recorded: Iterable[Process]) -> frozenset[int]:
    """List the numbers of those starts whose recorded process runs."""
    for process in _children.values():
        process.poll()  # an own child that has ended must not be taken for running
    return frozenset(
        one.start
        for one in recorded
        if one.pid is not None and one.start_time is not None and still_runs(one.pid, one.start_time)
    )


def status_of(recorded: Process) -> int | None:
    """Give the exit status of a recorded process that was this one's child and has ended."""
    if recorded.pid is None or recorded.start_time is None:
        return None
    process = _children.get((recorded.pid, recorded.start_time))
    return None if process is None else process.poll()


def has_become_its_role(pid: int) -> bool:
    """Say whether a process no longer waits for the word; one that is ending has no command line."""
    with suppress(psutil.Error):
        words = psutil.Process(pid).cmdline()
        return bool(words) and not any(_HELD in word for word in words)
    return False


def starts_of(launch_id: str) -> set[int]:
    """List the numbers of the starts of which any process is alive."""
    found = set()
    for process in marked_processes(launch_id):
        with suppress(psutil.Error, ValueError):
            found.add(int(process.environ().get(START_MARK, "")))
    return found


def tell_to_stop(
    launch_id: str, task: str, agents: Iterable[tuple[int, float]], number: signal.Signals
) -> None:
    """Send a signal to a task's agents, and to workers whose agent is gone; agents tell their own workers."""
    cared_for = {pid for pid, start_time in agents if still_runs(pid, start_time)}
    told = []
    for process in marked_processes(launch_id, task):
        with suppress(psutil.Error):
            above = {parent.pid for parent in process.parents()}
            if process.pid in cared_for or not above & cared_for:
                told.append(process)
    for process in told:  # an agent that ends at once would make orphans of its workers
        with suppress(psutil.Error):
            process.send_signal(number)


def kill(launch_id: str, task: str) -> None:
    """End every process of a task at once; only where the user forces a move."""
    for process in marked_processes(launch_id, task):
        with suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)

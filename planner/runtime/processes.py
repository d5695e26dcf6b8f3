"""Start roles that outlive their supervisor, find their processes again, and stop them.

A role is started in two steps: first a small process that waits, then, once it is on record, the signal to
become the role. If the supervisor dies in between, the process ends without that signal. So no role ever
runs that is not on record.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from libra_plan.planner.launchers.agents import Agent
from libra_plan.planner.runtime.journal import Intent
from libra_plan.planner.runtime.state import Process

__all__ = [
    "MARK",
    "START_MARK",
    "WaitingProcess",
    "has_become_its_role",
    "hear_signals",
    "kill",
    "live_starts",
    "log_of",
    "marked_processes",
    "role_environment",
    "start_role",
    "start_time_of",
    "start_waiting",
    "starts_of",
    "status_of",
    "still_runs",
    "stop_targets",
    "tell_to_stop",
    "telling_line",
]

MARK = "LIBRA_PLAN_LAUNCH_ID"  # in the environment of every process of a launch
START_MARK = "LIBRA_PLAN_START"  # in the environment of every process: which start it descends from

_TAIL_BYTES = 16 * 1024
_WIDTH = 200  # characters: a message is one line
_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b(: .*)?")  # as Python ends a traceback
_OF_TORCHRUN = "ChildFailedError"  # says only that a rank failed
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
class WaitingProcess:
    """A process that waits for the signal to become a role; pid and start time (s since boot) name it."""

    process: subprocess.Popen[bytes]
    start_time: float

    @property
    def pid(self) -> int:
        """The process id, which the role keeps."""
        return self.process.pid

    def release(self) -> None:
        """Let the process become the role."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it is gone, which the next wait reports
            self.process.stdin.write(b"g")
            self.process.stdin.flush()
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        _children[self.pid, self.start_time] = self.process


def log_of(folder: Path, agent: Agent, generation: int) -> Path:
    """Return the log of a role in the folder of its run."""
    return folder / "logs" / agent.task / agent.role / f"g{generation:06d}.log"


def start_role(
    agent: Agent, intent: Intent, launch_id: str, working_folder: str, inherited: Mapping[str, str]
) -> WaitingProcess:
    """Start the process that waits to become a role; an OSError or a ValueError when there is none."""
    Path(intent.progress).parent.mkdir(parents=True, exist_ok=True)
    environment = role_environment(agent, inherited) | {
        MARK: launch_id,
        START_MARK: str(intent.start),
        "LIBRA_PLAN_PROGRESS_FILE": intent.progress,
        "LIBRA_PLAN_TASK": agent.task,
    }
    return start_waiting(agent.argv, environment, Path(intent.log), working_folder)


def start_waiting(
    argv: Sequence[str], environment: Mapping[str, str], log: Path, working_folder: str
) -> WaitingProcess:
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
    return WaitingProcess(process, start_time_of(process.pid) or 0.0)


def live_starts(recorded: Iterable[Process]) -> frozenset[int]:
    """List the numbers of those starts whose recorded process runs."""
    for process in _children.values():
        process.poll()  # a child of ours that has ended must not count as running
    return frozenset(
        one.start
        for one in recorded
        if one.pid is not None and one.start_time is not None and still_runs(one.pid, one.start_time)
    )


def status_of(recorded: Process) -> int | None:
    """Return the exit status of a recorded process that was this one's child and has ended."""
    if recorded.pid is None or recorded.start_time is None:
        return None
    process = _children.get((recorded.pid, recorded.start_time))
    return None if process is None else process.poll()


def has_become_its_role(pid: int) -> bool:
    """Whether a process no longer waits; one that is ending has no command line."""
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


def stop_targets(launch_id: str, task: str, agents: set[int]) -> list[psutil.Process]:
    """List the processes of a task to signal: its agents, and workers whose agent is gone.

    Agents tell their own workers. All are listed before any is told: an agent that ends at once would
    make orphans of its workers.
    """
    found = []
    for process in marked_processes(launch_id, task):
        with suppress(psutil.Error):
            above = {parent.pid for parent in process.parents()}
            if process.pid in agents or not above & agents:
                found.append(process)
    return found


def tell_to_stop(
    launch_id: str, task: str, agents: Iterable[tuple[int, float]], number: signal.Signals
) -> None:
    """Send a signal to a task's agents (pid, start time), and to workers whose agent is gone."""
    cared_for = {pid for pid, start_time in agents if still_runs(pid, start_time)}
    for process in stop_targets(launch_id, task, cared_for):
        with suppress(psutil.Error):
            process.send_signal(number)


def kill(launch_id: str, task: str) -> None:
    """End every process of a task at once; only where the user forces a move."""
    for process in marked_processes(launch_id, task):
        with suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)


def marked_processes(launch_id: str, task: str | None = None) -> list[psutil.Process]:
    """Find the live processes that carry the mark of a launch (and a task), but the caller.

    The mark is inherited by every descendant, so that workers are found whose agent is gone.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            environment = process.environ()
        except (psutil.Error, OSError):
            continue  # gone, or another user's
        if environment.get(MARK) == launch_id and task in (None, environment.get("LIBRA_PLAN_TASK")):
            found.append(process)
    return found


def start_time_of(pid: int) -> float | None:
    """Return when a process was started, seconds since the host was; None when there is none of this number.

    Seconds since the epoch would name another process whenever the host's clock is set.
    """
    seen = _state_and_start(pid)
    return None if seen is None else seen[1]


def still_runs(pid: int, start_time: float) -> bool:
    """Whether a recorded process runs; a process that took over its number does not count."""
    seen = _state_and_start(pid)
    return seen is not None and seen[0] not in b"ZX" and abs(seen[1] - start_time) < 0.05


def _state_and_start(pid: int) -> tuple[bytes, float] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:  # gone, or another user's where the system hides those
        return None
    fields = stat.rpartition(b")")[2].split()  # from the state on: the name before may hold anything
    return fields[0], int(fields[19]) / os.sysconf("SC_CLK_TCK")


def role_environment(agent: Agent, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables of other launches and torchrun's defaults."""
    kept = {
        key: value
        for key, value in inherited.items()
        if not key.startswith(("LIBRA_PLAN_", "PET_")) and key not in agent.unset
    }
    return {**kept, **agent.environment}


@contextmanager
def hear_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP (the terminal is gone) with `handle`.

    Elsewhere than in the main thread they stay as they are; under nohup SIGHUP stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, lambda received, _: handle(received)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def telling_line(path: Path) -> str:
    """Return the last line of a log that names an error, else its last line with any word."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalnum, line))]
    # torchrun puts `[rank0]: ` before each line of a rank
    plain = [(line, re.sub(r"^\[\w+\]:\s*", "", line)) for line in lines]
    errors = [line for line, bare in plain if _ERROR.fullmatch(bare) and _OF_TORCHRUN not in line]
    return (errors or lines or [""])[-1][:_WIDTH]

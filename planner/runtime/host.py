"""What a launch must know of its host: its node, free GPUs and ports, and what still runs there."""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec
import psutil

from libra_plan.errors import InputError, LaunchError, Where, few
from libra_plan.planner.launchers.agents import Agent
from libra_plan.planner.launchers.manifest import GpuEntry, Manifest, NodeEntry
from libra_plan.profiles.document import shown
from libra_plan.profiles.durable import write_atomically

__all__ = [
    "MARK",
    "AgentState",
    "GpuCheck",
    "GpuReport",
    "GpuUse",
    "LaunchState",
    "check_gpus_free",
    "check_ports_free",
    "check_programs",
    "check_visible",
    "gpus_unknown",
    "hear_signals",
    "marked_processes",
    "read_state",
    "refuse_survivors",
    "role_environment",
    "start_time_of",
    "still_runs",
    "this_node",
    "write_state",
]

MARK = "LIBRA_PLAN_LAUNCH_ID"  # in the environment of every process of a launch
STATE_FILE = "launch.json"
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_GET_TORCHRUN = "pip install torch, or activate the environment that has it, so that torchrun is on PATH"


class GpuUse(str, Enum):
    """Say what is known about a GPU before roles are started on it."""

    FREE = "free"
    BUSY = "busy"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class GpuReport:
    """What a check found on one GPU; `detail` names the holder, or why nothing is known."""

    gpu: str
    state: GpuUse
    detail: str = ""

    def __str__(self) -> str:
        return f"GPU {self.gpu} {self.state.value}" + (f" ({self.detail})" if self.detail else "")


_WAYS = {
    GpuUse.BUSY: "stop their holders",
    GpuUse.UNKNOWN: "where you know that the unknown ones are free, add --allow-unknown-gpus",
}

GpuCheck = Callable[[str, tuple[GpuEntry, ...]], tuple[GpuReport, ...]]


def gpus_unknown(node: str, gpus: tuple[GpuEntry, ...]) -> tuple[GpuReport, ...]:
    """Say that nothing is known, which is not the same as free."""
    return tuple(
        GpuReport(f"{node}:{gpu.index}", GpuUse.UNKNOWN, "nothing reads the GPUs here") for gpu in gpus
    )


def this_node(manifest: Manifest, name: str | None) -> NodeEntry:
    """Find the node this host is: the one named, the only one, or the one with this name or address."""
    nodes = manifest.spec.nodes
    if name is None and len(nodes) == 1:
        return nodes[0]
    names = [name] if name is not None else _own_names()
    found = [node for node in nodes if node.id in names or (name is None and node.address in names)]
    if len(found) == 1:
        return found[0]
    known = [node.id for node in nodes]
    if name is not None:
        near = difflib.get_close_matches(name, known, n=1)
        raise InputError(
            "the manifest has no such node",
            got=f"--node {name}",
            allowed=few(known),
            way_out=f"did you mean `--node {near[0]}`?" if near else "name one of these with --node",
        )
    raise InputError(
        "it is not clear which node of the manifest this host is",
        got=f"this host is {', '.join(names)}" + "".join(f"; {node.id} fits" for node in found),
        allowed=few(known),
        way_out=f"name it with --node, as in --node {(found or nodes)[0].id}",
    )


def _own_names() -> list[str]:
    """Give the names and addresses that other hosts may know this one by."""
    host = socket.gethostname()
    found = [one for each in psutil.net_if_addrs().values() for one in each]
    texts = [one.address.partition("%")[0] for one in found if one.family in _INTERNET]
    outside = [text for text in texts if not _is_local(text)]
    return list(dict.fromkeys([host, host.partition(".")[0], *sorted(outside)]))


def _is_local(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return address.is_loopback or address.is_link_local


def check_visible(node: NodeEntry, agents: Iterable[Agent], environment: Mapping[str, str]) -> None:
    """Refuse planned GPUs that CUDA_VISIBLE_DEVICES of the caller hides: they are someone else's.

    An entry may be an index, a UUID or the beginning of one UUID, as CUDA reads it.
    """
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return
    visible = {
        index for entry in text.split(",") if (index := _visible_index(entry.strip(), node)) is not None
    }
    cards = {gpu.index: gpu.card for gpu in node.gpus}
    planned = {cards.get(index, index) for agent in agents for index in agent.gpus}
    hidden = sorted(planned - visible)
    if hidden:
        raise LaunchError(
            f"the manifest places roles on GPUs of node {node.id} that are not visible here",
            got=f"CUDA_VISIBLE_DEVICES={text}; planned: {_listed(planned)}; hidden: {_listed(hidden)}",
            allowed=f"GPUs of the cluster file: {_listed({gpu.card for gpu in node.gpus})}",
            way_out="unset CUDA_VISIBLE_DEVICES if all are yours, or exclude the hidden GPUs and solve again",
        )


def _visible_index(entry: str, node: NodeEntry) -> int | None:
    if entry.isascii() and entry.isdigit():
        return int(entry)
    found = {gpu.card for gpu in node.gpus if entry and gpu.uuid is not None and gpu.uuid.startswith(entry)}
    return found.pop() if len(found) == 1 else None


def _listed(indices: Iterable[int]) -> str:
    return ", ".join(str(index) for index in sorted(indices)) or "none"


def check_gpus_free(
    node: NodeEntry,
    agents: Iterable[Agent],
    check: GpuCheck,
    *,
    allow_unknown: bool,
    held: Collection[str] = (),
) -> tuple[GpuReport, ...]:
    """Ask the check about the GPUs to be used; refuse busy ones, and unknown ones unless allowed.

    Those that we `held` ourselves (`node:index`) may be busy yet.
    """
    used = {index for agent in agents for index in agent.gpus}
    gpus = tuple(gpu for gpu in node.gpus if gpu.index in used)
    reports = check(node.id, gpus) if gpus else ()
    answered = {report.gpu for report in reports}
    missing = tuple(gpu for gpu in gpus if f"{node.id}:{gpu.index}" not in answered)
    reports = (*reports, *gpus_unknown(node.id, missing))
    bad = [
        report
        for report in reports
        if (report.state is GpuUse.BUSY and report.gpu not in held)
        or (report.state is GpuUse.UNKNOWN and not allow_unknown)
    ]
    if bad:
        raise LaunchError(
            f"GPUs of node {node.id} are not known to be free",
            got="; ".join(_grouped(bad)),
            allowed=f"{len(reports)} free GPUs; {len(reports) - len(bad)} are",
            way_out="; ".join(way for state, way in _WAYS.items() if any(one.state is state for one in bad)),
        )
    return tuple(reports)


def _grouped(reports: Iterable[GpuReport]) -> Iterator[str]:
    """Say once what is true of several GPUs."""
    groups: dict[tuple[GpuUse, str], list[str]] = {}
    for report in reports:
        groups.setdefault((report.state, report.detail), []).append(report.gpu)
    for (state, detail), gpus in groups.items():
        word = "GPU" if len(gpus) == 1 else "GPUs"
        yield f"{word} {', '.join(gpus)} {state.value}" + (f" ({detail})" if detail else "")


def check_ports_free(agents: Iterable[Agent]) -> None:
    """Refuse to start when a rendezvous port of this host is taken, before anything runs."""
    for agent in agents:
        if agent.port is None:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the rendezvous store does
            try:
                probe.bind(("", agent.port))
            except OSError as problem:
                raise LaunchError(
                    f"port {agent.port} of {agent.task}/{agent.role} is taken on this host",
                    got=problem.strerror,
                    way_out="stop what listens there, or give the node another port range and solve again",
                ) from None


def check_programs(agents: Iterable[Agent], environment: Mapping[str, str]) -> None:
    """Refuse to start when a program of a role is not found, before another role holds GPUs for it."""
    missing: dict[str, list[str]] = {}
    for agent in agents:
        for program in _programs(agent.argv):
            if shutil.which(program, path=environment.get("PATH", os.defpath)) is None:
                missing.setdefault(program, []).append(f"{agent.task}/{agent.role}")
    if missing:
        program, roles = next(iter(missing.items()))
        where = "cannot be run" if os.sep in program else "is not on PATH"
        raise LaunchError(
            f"{program} {where}, and roles are started with it",
            got=few(list(dict.fromkeys(roles))),
            way_out=_GET_TORCHRUN
            if program == "torchrun"
            else "install it, or correct `command` in workload.yaml and solve again",
        )


def _programs(argv: tuple[str, ...]) -> Iterator[str]:
    """Give the program of an agent, and the one that torchrun starts for it where that is no script."""
    yield argv[0]
    if "--" in argv:
        at = argv.index("--")
        if "--no-python" in argv[:at]:
            yield argv[at + 1]


def role_environment(agent: Agent, inherited: Mapping[str, str]) -> dict[str, str]:
    """Leave out what would speak for another launch, and torchrun defaults that nobody planned."""
    kept = {
        key: value
        for key, value in inherited.items()
        if not key.startswith(("LIBRA_PLAN_", "PET_")) and key not in agent.unset
    }
    return {**kept, **agent.environment}


@contextmanager
def hear_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Hand SIGINT, SIGTERM and SIGHUP (the terminal is gone) to `handle`.

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


class AgentState(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One agent as recorded; pid and start time (s since the host was started) name the process."""

    task: str
    role: str
    generation: int
    pid: int
    start_time: float
    log: str
    status: int | None = None


class LaunchState(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a launch started, kept beside its logs."""

    launch_id: str
    manifest_digest: str
    generation: int
    node: str
    agents: tuple[AgentState, ...] = ()


def write_state(folder: Path, state: LaunchState) -> None:
    """Record a launch, whole or not at all."""
    text = json.dumps(msgspec.to_builtins(state), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / STATE_FILE, text.encode() + b"\n")


def read_state(folder: Path) -> LaunchState | None:
    """Read the record of the last launch from a folder; None when there is none."""
    path = folder / STATE_FILE
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=LaunchState)
    except (msgspec.MsgspecError, OSError) as problem:
        raise LaunchError(
            "the record of the last launch cannot be read, so its processes are not known",
            got=problem,
            way_out="make sure that nothing of it runs any more, then remove the file",
            where=Where(shown(path)),
        ) from None


def start_time_of(pid: int) -> float | None:
    """Give when a process was started, seconds since the host was; None when there is none of this number.

    Seconds since the epoch would name another process whenever the host's clock is set.
    """
    seen = _state_and_start(pid)
    return None if seen is None else seen[1]


def still_runs(pid: int, start_time: float) -> bool:
    """Say whether a recorded process runs; a process that took over its number does not count."""
    seen = _state_and_start(pid)
    return seen is not None and seen[0] not in b"ZX" and abs(seen[1] - start_time) < 0.05


def _state_and_start(pid: int) -> tuple[bytes, float] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:  # gone, or another user's where the system hides those
        return None
    fields = stat.rpartition(b")")[2].split()  # from the state on: the name before may hold anything
    return fields[0], int(fields[19]) / os.sysconf("SC_CLK_TCK")


def refuse_survivors(state: LaunchState | None) -> None:
    """Refuse to start beside agents or workers that the last launch in this folder left running."""
    if state is None:
        return
    left = [
        f"{agent.task}/{agent.role} (pid {agent.pid})"
        for agent in state.agents
        if still_runs(agent.pid, agent.start_time)
    ]
    left += [f"a worker (pid {process.pid})" for process in marked_processes(state.launch_id)]
    if left:
        raise LaunchError(
            f"processes of generation {state.generation} still run",
            got=", ".join(left),
            way_out="stop them first (Ctrl-C in their launch), or take another --folder for other GPUs",
        )


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

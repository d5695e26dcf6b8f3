"""What a launch checks on its host: its node, free ports, programs, and processes that still run."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import psutil

from libra_plan.errors import InputError, LaunchError, Where, few
from libra_plan.planner.launchers.agents import Agent
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry
from libra_plan.planner.runtime.processes import marked_processes, still_runs
from libra_plan.profiles.document import shown
from libra_plan.profiles.durable import write_atomically
from libra_plan.profiles.wording import did_you_mean

__all__ = [
    "STATE_FILE",
    "AgentState",
    "LaunchState",
    "check_ports_free",
    "check_programs",
    "read_state",
    "refuse_survivors",
    "this_node",
    "write_state",
]

STATE_FILE = "launch.json"
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_GET_TORCHRUN = "pip install torch, or activate the environment that has it, so that torchrun is on PATH"


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
        raise InputError(
            "the manifest has no such node",
            got=f"--node {name}",
            allowed=few(known),
            way_out=did_you_mean(f"--node {name}", [f"--node {each}" for each in known])
            or "name one of these with --node",
        )
    raise InputError(
        "it is not clear which node of the manifest this host is",
        got=f"this host is {', '.join(names)}" + "".join(f"; {node.id} fits" for node in found),
        allowed=few(known),
        way_out=f"name it with --node, as in --node {(found or nodes)[0].id}",
    )


def _own_names() -> list[str]:
    """List the names and addresses by which other hosts may know this one."""
    host = socket.gethostname()
    found = [one for each in psutil.net_if_addrs().values() for one in each if one.family in _INTERNET]
    addresses = [ipaddress.ip_address(one.address.partition("%")[0]) for one in found]
    outside = sorted(str(one) for one in addresses if not (one.is_loopback or one.is_link_local))
    return list(dict.fromkeys([host, host.partition(".")[0], *outside]))


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
    """Yield the program of an agent, and the one that torchrun starts for it where that is no script."""
    yield argv[0]
    if "--" in argv:
        at = argv.index("--")
        if "--no-python" in argv[:at]:
            yield argv[at + 1]


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
    """Record a launch atomically."""
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
            way_out="stop them first (Ctrl-C in their launch), or use another folder (--folder) for others",
        )

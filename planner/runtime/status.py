"""Compare what runs on this host with what was planned, and name each difference."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from libra_plan.errors import InputError
from libra_plan.planner.launchers.agents import Agent, AgentOptions, agents_of
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.runtime import host
from libra_plan.planner.runtime.host import LaunchState, still_runs
from libra_plan.planner.runtime.journal import read_journal
from libra_plan.planner.runtime.plans import read_plan
from libra_plan.planner.runtime.processes import START_MARK, live_starts
from libra_plan.planner.runtime.state import Process, State, state_of
from libra_plan.planner.telemetry.nvml import Card, read_cards

__all__ = ["Difference", "RoleStatus", "StatusReport", "status"]


@dataclass(frozen=True)
class Difference:
    """One way in which what runs is not what was planned.

    Kinds: `missing-role`, `missing-rank`, `wrong-gpu`, `wrong-generation`, `extra-process`, `unfinished`.
    """

    kind: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.message}"


@dataclass(frozen=True)
class RoleStatus:
    """A planned role: its GPUs (`node:index`), and the process that is it, if one is alive."""

    task: str
    role: str
    generation: int
    gpus: tuple[str, ...]
    pid: int | None
    log: str | None


@dataclass(frozen=True)
class StatusReport:
    """What should run here, what does, and where they differ. `unfinished` tells of an open hand-over.

    `stopped_at` (UTC) is when all was stopped, if it was; `foreground` the pid of a launch that is at work.
    """

    node: str
    generation: int | None
    digest: str | None
    roles: tuple[RoleStatus, ...]
    differences: tuple[Difference, ...]
    unfinished: str = ""
    notes: tuple[str, ...] = ()
    stopped_at: str | None = None
    foreground: int | None = None


@dataclass(frozen=True)
class _Seen:
    """A process that carries the run's mark; `visible` are the cards it may use, None for all."""

    pid: int
    start: int | None
    rank: int | None
    visible: frozenset[str] | None
    command: str


def status(
    folder: Path,
    *,
    cards: Callable[[], tuple[Card, ...]] = read_cards,
    options: AgentOptions | None = None,
) -> StatusReport:
    """Look at the processes and GPUs of a run; nothing is touched."""
    journal = read_journal(folder)
    state = state_of(journal)
    foreground, left = _foreground(host.read_state(folder))
    plan = None if state.running is None else read_plan(folder, state.running)
    agents = _agents(plan, state.node, options)
    seen = _seen(state.launch_id)
    notes: tuple[str, ...] = ()
    found: tuple[Card, ...] = ()
    try:
        found = cards() if agents else ()
    except InputError as problem:
        why = problem.what if problem.got is None else f"{problem.what} ({problem.got})"
        notes = (f"who uses which GPU is not checked: {why}",)
    away = sorted({one.host for one in state.processes if one.host not in (None, socket.gethostname())})
    if away:
        notes += (f"roles were started on {', '.join(map(str, away))} and cannot be seen from here",)
    unfinished = _unfinished(state)
    differences = (
        *((Difference("unfinished", "hand-over", unfinished),) if unfinished else ()),
        *left,
        *_roles(state, plan, agents),
        *_extra(state, agents, seen),
        *_visible(state, agents, seen),
        *_ranks(state, agents, seen),
        *_on_cards(state, agents, seen, found),
    )
    return StatusReport(
        node=state.node,
        generation=None if plan is None else plan.metadata.generation,
        digest=state.running,
        roles=tuple(_role_status(state, plan, agents)),
        differences=differences,
        unfinished=unfinished,
        notes=notes,
        stopped_at=journal[-1].at if journal and not state.open and plan is None else None,
        foreground=foreground,
    )


def _foreground(launched: LaunchState | None) -> tuple[int | None, tuple[Difference, ...]]:
    """Give the pid of the launch whose roles run in the foreground; those of one that is gone are extra."""
    live = [one for one in launched.agents if still_runs(one.pid, one.start_time)] if launched else []
    if launched is None or not live:
        return None, ()
    pid = int(launched.launch_id.partition("-")[0])
    with suppress(psutil.Error):
        if launched.launch_id.startswith(f"{pid}-{psutil.Process(pid).create_time():.2f}-"):
            return pid, ()
    said = f"of a launch that is gone (pid {pid}) runs yet"
    return None, tuple(
        Difference("extra-process", f"{one.task}/{one.role}", f"pid {one.pid} {said}") for one in live
    )


def _agents(plan: Manifest | None, node: str, options: AgentOptions | None) -> dict[tuple[str, str], Agent]:
    agents = () if plan is None else agents_of(plan, options)
    return {(agent.task, agent.role): agent for agent in agents if agent.node == node}


def _unfinished(state: State) -> str:
    if not state.open:
        return ""
    if state.stuck:
        return f"the way back failed ({state.stuck}); `libra-plan apply --yes` tries again"
    way = (
        f"going back ({state.reason})"
        if state.back
        else f"step {len(state.through) + 1} of {len(state.steps)}"
    )
    return f"{way}; `libra-plan apply --yes` goes on unless a supervisor is at work"


def _seen(launch_id: str) -> list[_Seen]:
    found = []
    for process in host.marked_processes(launch_id) if launch_id else ():
        with suppress(psutil.Error):
            environment = process.environ()
            visible = environment.get("CUDA_VISIBLE_DEVICES")
            found.append(
                _Seen(
                    process.pid,
                    _number(environment.get(START_MARK)),
                    _number(environment.get("RANK")),
                    None if visible is None else frozenset(filter(None, visible.split(","))),
                    " ".join(process.cmdline())[:120],
                )
            )
    return found


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _planned(state: State, agents: dict[tuple[str, str], Agent]) -> Iterator[tuple[Process, Agent]]:
    for one in state.processes:
        agent = agents.get((one.task, one.role))
        if agent is not None:
            yield one, agent


def _role_status(
    state: State, plan: Manifest | None, agents: dict[tuple[str, str], Agent]
) -> Iterator[RoleStatus]:
    generations = _generations(plan)
    live = live_starts(state.processes)
    known = {(one.task, one.role): one for one in state.processes}
    for (task, role), agent in agents.items():
        one = known.get((task, role))
        yield RoleStatus(
            task,
            role,
            generations[task],
            tuple(f"{agent.node}:{gpu}" for gpu in agent.gpus),
            one.pid if one is not None and one.start in live else None,
            None if one is None else one.log,
        )


def _generations(plan: Manifest | None) -> dict[str, int]:
    return {} if plan is None else {task.id: task.generation for task in plan.spec.tasks}


def _roles(state: State, plan: Manifest | None, agents: dict[tuple[str, str], Agent]) -> Iterator[Difference]:
    generations = _generations(plan)
    live = live_starts(state.processes)
    known = {(one.task, one.role): one for one in state.processes}
    for key, agent in agents.items():
        where, one = "/".join(key), known.get(key)
        if one is None:
            yield Difference("missing-role", where, "it is planned and was not started")
        elif one.start not in live:
            yield Difference("missing-role", where, f"its process (pid {one.pid}) has ended; see {one.log}")
        elif one.generation != generations[agent.task]:
            planned = generations[agent.task]
            yield Difference("wrong-generation", where, f"{one.generation} runs, {planned} is planned")


def _extra(state: State, agents: dict[tuple[str, str], Agent], seen: list[_Seen]) -> Iterator[Difference]:
    recorded = {one.start: one for one in state.processes}
    for one in seen:
        owner = None if one.start is None else recorded.get(one.start)
        if owner is None:
            message = f"pid {one.pid} carries the mark of this run and is not on record: {one.command}"
            yield Difference("extra-process", "host", message)
        elif (owner.task, owner.role) not in agents:
            yield Difference(
                "extra-process", f"{owner.task}/{owner.role}", f"pid {one.pid} runs and is not planned"
            )


def _visible(state: State, agents: dict[tuple[str, str], Agent], seen: list[_Seen]) -> Iterator[Difference]:
    """Compare the cards that each process may use with those of its role."""
    for process, agent in _planned(state, agents):
        text = agent.environment.get("CUDA_VISIBLE_DEVICES", "")
        allowed = frozenset(filter(None, text.split(",")))
        allowed |= frozenset(filter(None, agent.environment.get("LIBRA_PLAN_GPU_UUIDS", "").split(",")))
        for one in seen:
            if one.start == process.start and (one.visible is None or not one.visible <= allowed):
                sees = "all" if one.visible is None else ",".join(sorted(one.visible))
                yield Difference(
                    "wrong-gpu",
                    f"{process.task}/{process.role}",
                    f"pid {one.pid} may use GPUs {sees}; planned: {text or 'none'}",
                )


def _ranks(state: State, agents: dict[tuple[str, str], Agent], seen: list[_Seen]) -> Iterator[Difference]:
    live = live_starts(state.processes)
    for process, agent in _planned(state, agents):
        found = {one.rank for one in seen if one.start == process.start and one.rank is not None}
        by_torchrun = Path(agent.argv[0]).name == "torchrun"
        if process.start not in live or not agent.gpus or not (found or by_torchrun):
            continue
        wanted = range(agent.first_rank, agent.first_rank + len(agent.gpus))
        missing = [str(rank) for rank in wanted if rank not in found]
        if missing:
            yield Difference(
                "missing-rank", f"{process.task}/{process.role}", f"no process has rank {', '.join(missing)}"
            )


def _on_cards(
    state: State, agents: dict[tuple[str, str], Agent], seen: list[_Seen], cards: tuple[Card, ...]
) -> Iterator[Difference]:
    """Compare who is on which card with the plan, as far as the driver tells."""
    ours = {one.pid: one.start for one in seen}
    planned = {process.start: agent for process, agent in _planned(state, agents)}
    owners: dict[str, list[str]] = {}
    for agent in agents.values():
        for index in _cards(agent):
            owners.setdefault(index, []).append(f"{agent.task}/{agent.role}")
    for card in cards:
        for pid in card.processes or ():
            start = ours.get(pid)
            agent_of = None if start is None else planned.get(start)
            if agent_of is not None and str(card.index) not in _cards(agent_of):
                where = f"{agent_of.task}/{agent_of.role}"
                wanted = ", ".join(_cards(agent_of)) or "none"
                yield Difference("wrong-gpu", where, f"pid {pid} is on GPU {card.index}; planned: {wanted}")
            elif pid not in ours and str(card.index) in owners:
                names = ", ".join(owners[str(card.index)])
                message = f"pid {pid}, which is not of this run, is on the GPU of {names}"
                yield Difference("extra-process", f"GPU {card.index}", message)


def _cards(agent: Agent) -> list[str]:
    return [card for card in agent.environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if card]

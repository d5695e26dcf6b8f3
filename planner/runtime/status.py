"""Compare what runs on this host with what was planned, and name each difference."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from libra_plan.errors import InputError, LaunchError
from libra_plan.planner.launchers.agents import Agent, AgentOptions, agents_of
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.runtime.apply import START_AGAIN
from libra_plan.planner.runtime.host import LaunchState, read_state
from libra_plan.planner.runtime.journal import Started, read_journal
from libra_plan.planner.runtime.processes import START_MARK, live_starts, marked_processes, still_runs
from libra_plan.planner.runtime.settings import RUN_FOLDER
from libra_plan.planner.runtime.state import RunState, read_kept_manifest, state_of
from libra_plan.planner.telemetry.nvml import Card, read_cards
from libra_plan.profiles.counting import counted

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
    """The planned and the running roles, and where they differ. `unfinished` describes an open hand-over.

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

    def require_as_planned(self) -> None:
        """Raise a LaunchError with the way out where what runs is not what was planned."""
        kinds = {one.kind for one in self.differences}
        if not kinds:
            return
        if "unfinished" in kinds:
            way_out = "`libra-plan apply --yes` goes on, `libra-plan apply --back --yes` calls it off"
        elif kinds & {"missing-role", "missing-rank"}:
            way_out = START_AGAIN  # `apply` does not start roles that have ended
        elif "wrong-generation" in kinds:
            way_out = "`libra-plan apply MANIFEST --yes` moves to a plan"
        else:
            way_out = "stop the processes named above, unless you want them there"
        raise LaunchError(
            "what runs is not what was planned",
            got=f"{counted(len(self.differences), 'difference')}, named above",
            way_out=way_out,
        )


@dataclass(frozen=True)
class _Seen:
    """A process that carries the run's mark; `visible` are the cards it may use, None for all."""

    pid: int
    start: int | None
    rank: int | None
    visible: frozenset[str] | None
    command: str


def status(
    folder: Path | str = RUN_FOLDER,
    *,
    cards: Callable[[], tuple[Card, ...]] = read_cards,
    options: AgentOptions | None = None,
) -> StatusReport:
    """Compare the processes and GPUs of a run with what was planned; nothing is touched.

    Parameters
    ----------
    folder
        Folder of the run.
    cards
        Function that reads the GPUs of this host.
    options
        How torchrun was started.

    Returns
    -------
    StatusReport
        What should run, what does, and every difference; `require_as_planned` raises where there is one.

    Raises
    ------
    LaunchError
        If the journal or the record of the last launch is damaged.

    Examples
    --------
    >>> import libra_plan as lp
    >>> lp.status().differences
    ()
    """
    folder = Path(folder)
    journal = read_journal(folder)
    state = state_of(journal)
    ran = any(isinstance(entry.record, Started) for entry in journal)
    foreground, left = _foreground(read_state(folder))
    plan = read_kept_manifest(folder, state.running)
    agents = () if plan is None else agents_of(plan, options)
    here = {(agent.task, agent.role): agent for agent in agents if agent.node == state.node}
    notes: tuple[str, ...] = ()
    found: tuple[Card, ...] = ()
    try:
        found = cards() if here else ()
    except InputError as problem:
        why = problem.what if problem.got is None else f"{problem.what} ({problem.got})"
        notes = (f"who uses which GPU is not checked: {why}",)
    away = sorted({one.host for one in state.processes if one.host not in (None, socket.gethostname())})
    if away:
        notes += (f"roles were started on {', '.join(map(str, away))} and cannot be seen from here",)
    unfinished = _unfinished(state)
    look = _Comparison(state, plan, here, _seen(state.launch_id), found)
    return StatusReport(
        node=state.node,
        generation=None if plan is None else plan.metadata.generation,
        digest=state.running,
        roles=tuple(look.roles()),
        differences=(
            *((Difference("unfinished", "hand-over", unfinished),) if unfinished else ()),
            *left,
            *look.missing(),
            *look.extra(),
            *look.visible(),
            *look.ranks(),
            *look.on_cards(),
        ),
        unfinished=unfinished,
        notes=notes,
        stopped_at=journal[-1].at if ran and not state.open and plan is None else None,
        foreground=foreground,
    )


def _foreground(launched: LaunchState | None) -> tuple[int | None, tuple[Difference, ...]]:
    """Return the pid of the launch whose roles run in the foreground; those of one that is gone are extra."""
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


def _unfinished(state: RunState) -> str:
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
    for process in marked_processes(launch_id) if launch_id else ():
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


class _Comparison:
    """The recorded, the planned and the observed processes of this node."""

    def __init__(
        self,
        state: RunState,
        plan: Manifest | None,
        agents: dict[tuple[str, str], Agent],
        seen: list[_Seen],
        cards: tuple[Card, ...],
    ) -> None:
        self.recorded = state.processes
        self.live = live_starts(state.processes)
        self.generations = {} if plan is None else {task.id: task.generation for task in plan.spec.tasks}
        self.agents = agents
        self.seen = seen
        self.cards = cards
        self.planned = [
            (one, agents[one.task, one.role]) for one in self.recorded if (one.task, one.role) in agents
        ]

    def roles(self) -> Iterator[RoleStatus]:
        """List the planned roles, with the process of each."""
        known = {(one.task, one.role): one for one in self.recorded}
        for (task, role), agent in self.agents.items():
            one = known.get((task, role))
            yield RoleStatus(
                task,
                role,
                self.generations[task],
                tuple(f"{agent.node}:{gpu}" for gpu in agent.gpus),
                one.pid if one is not None and one.start in self.live else None,
                None if one is None else one.log,
            )

    def missing(self) -> Iterator[Difference]:
        """List planned roles that do not run, or not under the planned generation."""
        known = {(one.task, one.role): one for one in self.recorded}
        for key, agent in self.agents.items():
            where, one = f"{agent.task}/{agent.role}", known.get(key)
            if one is None:
                yield Difference("missing-role", where, "it is planned and was not started")
            elif one.start not in self.live:
                yield Difference(
                    "missing-role", where, f"its process (pid {one.pid}) has ended; see {one.log}"
                )
            elif one.generation != self.generations[agent.task]:
                planned = self.generations[agent.task]
                yield Difference("wrong-generation", where, f"{one.generation} runs, {planned} is planned")

    def extra(self) -> Iterator[Difference]:
        """List processes of the run that are not on record, or not planned."""
        recorded = {one.start: one for one in self.recorded}
        for one in self.seen:
            owner = None if one.start is None else recorded.get(one.start)
            if owner is None:
                message = f"pid {one.pid} carries the mark of this run and is not on record: {one.command}"
                yield Difference("extra-process", "host", message)
            elif (owner.task, owner.role) not in self.agents:
                where = f"{owner.task}/{owner.role}"
                yield Difference("extra-process", where, f"pid {one.pid} runs and is not planned")

    def visible(self) -> Iterator[Difference]:
        """List processes that may use other cards than those of their role."""
        for process, agent in self.planned:
            allowed = {*_cards(agent), *_listed(agent, "LIBRA_PLAN_GPU_UUIDS")}
            for one in self.seen:
                if one.start == process.start and (one.visible is None or not one.visible <= allowed):
                    sees = "all" if one.visible is None else ",".join(sorted(one.visible))
                    yield Difference(
                        "wrong-gpu",
                        f"{process.task}/{process.role}",
                        f"pid {one.pid} may use GPUs {sees}; planned: {','.join(_cards(agent)) or 'none'}",
                    )

    def ranks(self) -> Iterator[Difference]:
        """List ranks that no process has, where a role has ranks."""
        for process, agent in self.planned:
            found = {one.rank for one in self.seen if one.start == process.start and one.rank is not None}
            by_torchrun = Path(agent.argv[0]).name == "torchrun"
            if process.start not in self.live or not agent.gpus or not (found or by_torchrun):
                continue
            wanted = range(agent.first_rank, agent.first_rank + len(agent.gpus))
            missing = [str(rank) for rank in wanted if rank not in found]
            if missing:
                where = f"{process.task}/{process.role}"
                yield Difference("missing-rank", where, f"no process has rank {', '.join(missing)}")

    def on_cards(self) -> Iterator[Difference]:
        """List processes on other cards than planned, as far as the driver reports them."""
        ours = {one.pid: one.start for one in self.seen}
        planned = {process.start: agent for process, agent in self.planned}
        owners: dict[str, list[str]] = {}
        for agent in self.agents.values():
            for index in _cards(agent):
                owners.setdefault(index, []).append(f"{agent.task}/{agent.role}")
        for card in self.cards:
            for pid in card.processes or ():
                start = ours.get(pid)
                owner = None if start is None else planned.get(start)
                if owner is not None and str(card.index) not in _cards(owner):
                    where, wanted = f"{owner.task}/{owner.role}", ", ".join(_cards(owner)) or "none"
                    yield Difference(
                        "wrong-gpu", where, f"pid {pid} is on GPU {card.index}; planned: {wanted}"
                    )
                elif pid not in ours and str(card.index) in owners:
                    names = ", ".join(owners[str(card.index)])
                    message = f"pid {pid}, which is not of this run, is on the GPU of {names}"
                    yield Difference("extra-process", f"GPU {card.index}", message)


def _cards(agent: Agent) -> list[str]:
    return _listed(agent, "CUDA_VISIBLE_DEVICES")


def _listed(agent: Agent, variable: str) -> list[str]:
    return [each for each in agent.environment.get(variable, "").split(",") if each]

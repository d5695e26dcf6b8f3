"""Start the roles of a manifest on this host, wait for them, and stop what belongs together.

A dry run is the default. Only processes that this launch started are ever signalled: agents by
their handle, their workers by the mark in the environment that they inherit. Nothing is killed:
what does not stop within its grace is reported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from libra_plan.errors import InputError, LaunchError, few, writing
from libra_plan.planner.launchers.agents import Agent, AgentOptions, agents_of
from libra_plan.planner.launchers.check import require_sound_manifest
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.launchers.store import lock_folder, manifest_of_run
from libra_plan.planner.runtime import gpus, host, processes
from libra_plan.planner.runtime.gpus import GpuReport
from libra_plan.planner.runtime.host import AgentState, LaunchState
from libra_plan.planner.runtime.journal import read_journal
from libra_plan.planner.runtime.settings import RUN_FOLDER
from libra_plan.planner.runtime.state import state_of
from libra_plan.profiles.wording import did_you_mean

__all__ = ["AgentExit", "LaunchReport", "Survivor", "launch"]

_NOT_STARTED = 127  # the shell's status for a program that cannot be run
_STOPPED = "stopped"
_NEVER = "not started"
_POLL_S = 0.05
_SCAN_S = 0.2
_SETTLE_S = 2.0  # for helpers that end a moment after their agent


@dataclass(frozen=True)
class AgentExit:
    """How an agent ended: its exit status (negative: the signal), None when it did not stop."""

    task: str
    role: str
    pid: int | None
    status: int | None
    note: str = ""

    @property
    def outcome(self) -> str:
        """How it ended, in words; a role that never ran has no status."""
        if self.status is None:
            return self.note or _NEVER
        if self.note == _STOPPED:
            return f"{_STOPPED} (status {self.status})"
        return f"status {self.status}" + (f" ({self.note})" if self.note else "")


Tell = Callable[[AgentState | AgentExit], None]


@dataclass(frozen=True)
class Survivor:
    """A process of this launch that still ran when the launch returned."""

    task: str
    pid: int
    command: str


@dataclass(frozen=True)
class LaunchReport:
    """The agents that would be started (dry run), or were started, and how they ended."""

    node: str
    agents: tuple[Agent, ...]
    gpus: tuple[GpuReport, ...] = ()
    exits: tuple[AgentExit, ...] = ()
    survivors: tuple[Survivor, ...] = ()
    interrupted: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether every agent ended with status 0 and nothing is left."""
        return not self.survivors and all(one.status == 0 for one in self.exits)

    @property
    def stopped_as_asked(self) -> bool:
        """Whether a signal ended it, every role within its grace, and none had failed."""
        stopped = all(one.note in (_STOPPED, _NEVER) or one.status == 0 for one in self.exits)
        return self.interrupted is not None and not self.survivors and stopped

    def require_success(self, folder: Path = RUN_FOLDER) -> None:
        """Raise a LaunchError that names the roles that did not end well; their logs are in the folder."""
        if not self.succeeded:
            failed = [f"{one.task}/{one.role} {one.outcome}" for one in self.exits if one.status != 0]
            raise LaunchError(
                "not every role ended well",
                got=", ".join(failed) or f"{len(self.survivors)} survivors",
                way_out=f"see the logs in {folder / 'logs'}",
            )


def launch(
    run: Manifest | Path | str,
    *,
    node: str | None = None,
    tasks: Sequence[str] | None = None,
    dry_run: bool = True,
    folder: Path | str = RUN_FOLDER,
    check_gpus: gpus.GpuCheck = gpus.gpus_free,
    allow_unknown_gpus: bool = False,
    options: AgentOptions | None = None,
    environment: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    tell: Tell = lambda _: None,
) -> LaunchReport:
    """Start the roles of a manifest on one node and wait until all have ended.

    When a role fails, the others of its task are stopped with the task's stop signal and grace;
    SIGINT, SIGTERM and SIGHUP stop all so. `apply(run, first=True)` starts roles that outlive the call.

    Parameters
    ----------
    run
        A manifest, its file, or the folder that `solve` wrote.
    node
        Which node of the manifest this host is; found by name or address unless given.
    tasks
        Only these tasks; all unless given.
    dry_run
        List what would be started and touch nothing.
    folder
        Folder for logs and the record of processes.
    check_gpus
        Function that reports which GPUs are free.
    allow_unknown_gpus
        Start though it is not known whether GPUs are free.
    options
        How torchrun is started.
    environment
        What roles inherit; that of this process unless given.
    clock
        Seconds that only grow.
    tell
        Function that hears of every role when it was started and when it has ended.

    Returns
    -------
    LaunchReport
        What was started and how it ended; `require_success` raises where a role did not end well.

    Raises
    ------
    LaunchError
        If GPUs, ports or programs are not to be had, or processes of an earlier launch still run.
    LockedError
        If another run is at work in the folder.
    InputError
        If the manifest, the node or a task is not to be used.

    Examples
    --------
    >>> import libra_plan as lp
    >>> manifest = lp.solve("profiles/", gpus=8).save("run/")
    >>> lp.launch("run/").agents[0].task
    'agent-7b'
    """
    manifest = manifest_of_run(run)
    require_sound_manifest(manifest)
    here = host.this_node(manifest, node)
    agents = _chosen(manifest, here.id, tasks, options)
    if dry_run:
        return LaunchReport(here.id, agents)
    inherited = dict(os.environ if environment is None else environment)
    folder = Path(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        host.refuse_survivors(host.read_state(folder))
        _refuse_supervised(folder)
        gpus.check_visible(here, agents, inherited)
        reports = gpus.check_gpus_free(here, agents, check_gpus, allow_unknown=allow_unknown_gpus)
        host.check_ports_free(agents)
        host.check_programs(agents, inherited)
        started = _ForegroundRun(manifest, here.id, folder, inherited, clock, tell)
        with processes.hear_signals(started.interrupt):
            started.go(agents)
    exits, survivors = tuple(started.exits), tuple(started.survivors)
    ended_by = signal.Signals(started.signals[0]).name if started.signals else None
    return LaunchReport(here.id, agents, reports, exits, survivors, ended_by)


def _chosen(
    manifest: Manifest, node: str, tasks: Sequence[str] | None, options: AgentOptions | None
) -> tuple[Agent, ...]:
    known = [task.id for task in manifest.spec.tasks]
    unknown = [task for task in tasks or () if task not in known]
    if unknown:
        raise InputError(
            "the manifest runs no such task",
            got=", ".join(f"--task {task}" for task in unknown),
            allowed=few(known) or "none",
            way_out=did_you_mean(f"--task {unknown[0]}", [f"--task {task}" for task in known]),
        )
    return tuple(
        agent
        for agent in agents_of(manifest, options)
        if agent.node == node and (tasks is None or agent.task in tasks)
    )


def _refuse_supervised(folder: Path) -> None:
    """Refuse to start beside roles that a supervisor of this folder started."""
    state = state_of(read_journal(folder))
    if state.open or (state.launch_id and processes.marked_processes(state.launch_id)):
        raise LaunchError(
            "roles of this folder run under a supervisor",
            got=folder,
            way_out="`libra-plan apply` moves them, `libra-plan stop` ends them",
        )


@dataclass
class _Running:
    agent: Agent
    process: subprocess.Popen[bytes]
    record: AgentState


@dataclass
class _ForegroundRun:
    """The agents of one launch while they run."""

    manifest: Manifest
    node: str
    folder: Path
    inherited: dict[str, str]
    clock: Callable[[], float]
    tell: Tell
    live: list[_Running] = field(default_factory=list)
    exits: list[AgentExit] = field(default_factory=list)
    survivors: list[Survivor] = field(default_factory=list)
    deadlines: dict[str, float] = field(default_factory=dict)  # task -> when its grace ends
    signals: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        own = psutil.Process()
        self.tasks = {task.id: task for task in self.manifest.spec.tasks}
        self.state = LaunchState(
            launch_id=f"{own.pid}-{own.create_time():.2f}-{self.clock():.6f}",
            manifest_digest=self.manifest.metadata.digest,
            generation=self.manifest.metadata.generation,
            node=self.node,
        )

    def interrupt(self, number: int) -> None:
        """Remember a signal; it is acted on between polls."""
        self.signals.append(number)

    def go(self, agents: Sequence[Agent]) -> None:
        """Start the agents and wait for them; when the launch itself fails, tell them all to stop."""
        host.write_state(
            self.folder, self.state
        )  # recorded before the first start, so that marked processes can be found again
        try:
            for agent in agents:
                self.start(agent)
            self.wait()
        except BaseException:
            for task in {running.agent.task for running in self.live}:
                self._stop(task)
            raise

    # ------------------------------------------------------------ starting

    def start(self, agent: Agent) -> None:
        """Start one agent in a session of its own, unless its task is already being stopped."""
        if self.signals or agent.task in self.deadlines:
            self._add_exit(AgentExit(agent.task, agent.role, None, None, _NEVER))
            return
        generation = self.tasks[agent.task].generation
        log = processes.log_of(self.folder, agent, generation)
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    agent.argv,
                    env={
                        **processes.role_environment(agent, self.inherited),
                        processes.MARK: self.state.launch_id,
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except (OSError, ValueError) as problem:  # ValueError: a word that no process can be given
            reason = getattr(problem, "strerror", None) or problem
            note = f"{agent.argv[0]} cannot be started: {reason}"
            with log.open("a", encoding="utf-8") as output:
                output.write(f"libra-plan: {note}\n")
            self._add_exit(AgentExit(agent.task, agent.role, None, _NOT_STARTED, note))
            self._stop(agent.task)
            return
        record = AgentState(
            task=agent.task,
            role=agent.role,
            generation=generation,
            pid=process.pid,
            start_time=processes.start_time_of(process.pid) or 0.0,
            log=str(log),
        )
        self.live.append(_Running(agent, process, record))
        self._record(record)
        self.tell(record)

    def _record(self, record: AgentState) -> None:
        others = tuple(one for one in self.state.agents if one.pid != record.pid)
        self.state = msgspec.structs.replace(self.state, agents=(*others, record))
        host.write_state(self.folder, self.state)

    # ------------------------------------------------------------ waiting

    def wait(self) -> None:
        """Wait until every agent has ended, or has outlived the grace of its task."""
        while self.live:
            self._act_on_signals()
            for running in [one for one in self.live if one.process.poll() is not None]:
                self._ended(running)
            for running in [one for one in self.live if self._is_late(one.agent.task)]:
                self.live.remove(running)
                self._note_exit(running, "it did not stop within the grace")
            time.sleep(_POLL_S)
        self._report_survivors()

    def _act_on_signals(self) -> None:
        if self.signals:
            for task in {running.agent.task for running in self.live}:
                self._stop(task)
        if len(self.signals) > 1:  # a second signal: tell all agents to stop, without waiting
            self.deadlines = {running.agent.task: self.clock() for running in self.live}

    def _ended(self, running: _Running) -> None:
        self.live.remove(running)
        stopped = running.agent.task in self.deadlines
        self._note_exit(running, _STOPPED if stopped else "")
        self._record(msgspec.structs.replace(running.record, status=running.process.returncode))
        if running.process.returncode != 0:
            self._stop(running.agent.task)

    def _note_exit(self, running: _Running, note: str) -> None:
        status = running.process.returncode
        self._add_exit(AgentExit(running.agent.task, running.agent.role, running.process.pid, status, note))

    def _add_exit(self, one: AgentExit) -> None:
        self.exits.append(one)
        self.tell(one)

    # ------------------------------------------------------------ stopping

    def _stop(self, task: str) -> None:
        """Send the task's stop signal, once, to its agents and to workers whose agent is gone."""
        if task in self.deadlines:
            return
        lifecycle = self.tasks[task].lifecycle
        number = signal.Signals[lifecycle.stop_signal]
        self.deadlines[task] = self.clock() + lifecycle.grace_s
        agents = [running.process for running in self.live if running.agent.task == task]
        pids = {running.process.pid for running in self.live}
        targets = processes.stop_targets(self.state.launch_id, task, pids)
        for orphan in [one for one in targets if one.pid not in pids]:
            with suppress(psutil.Error):
                orphan.send_signal(number)
        for process in agents:
            process.send_signal(number)

    def _is_late(self, task: str) -> bool:
        return task in self.deadlines and self.clock() >= self.deadlines[task]

    def _report_survivors(self) -> None:
        """Wait for what still runs, as long as its task's grace (a moment when it has none), then name it."""
        until = max(self.deadlines.values(), default=0.0)
        until = max(until, self.clock() + _SETTLE_S)
        while left := processes.marked_processes(self.state.launch_id):
            if self.clock() >= until or len(self.signals) > 1:
                break
            time.sleep(_SCAN_S)
        for process in left:
            with suppress(psutil.Error):
                task = process.environ().get("LIBRA_PLAN_TASK", "")
                self.survivors.append(Survivor(task, process.pid, " ".join(process.cmdline())))

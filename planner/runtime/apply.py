"""Move what runs on this host to another manifest, or stop it: look, refuse, then supervise.

A dry run is the default. Only processes that carry the mark of this folder's run are ever signalled.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from libra_plan.errors import InputError, LaunchError
from libra_plan.planner.launchers.agents import AgentOptions, agents_of
from libra_plan.planner.launchers.check import require_sound
from libra_plan.planner.launchers.document import manifest_to_json
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, Transition
from libra_plan.planner.launchers.store import CURRENT, LOCK, lock_folder
from libra_plan.planner.runtime import checks, costs, host, moves
from libra_plan.planner.runtime import records as r
from libra_plan.planner.runtime.goal import Deadlines, Goal
from libra_plan.planner.runtime.host import GpuCheck
from libra_plan.planner.runtime.journal import JOURNAL, Journal, open_journal, read_journal
from libra_plan.planner.runtime.plans import keep_plan, read_plan
from libra_plan.planner.runtime.processes import live_starts
from libra_plan.planner.runtime.state import State, state_of
from libra_plan.planner.runtime.supervisor import Host, Supervisor, boot_clock
from libra_plan.profiles.durable import write_atomically
from libra_plan.profiles.switch_costs import STORE, SwitchRecord

__all__ = ["HandOverReport", "Settings", "apply", "resume", "stop"]


@dataclass(frozen=True)
class Settings:
    """How a hand-over is done. `stores` are files that the measured costs of moves are added to."""

    force: bool = False
    check_gpus: GpuCheck = host.gpus_unknown
    allow_unknown_gpus: bool = False
    deadlines: Deadlines = field(default_factory=Deadlines)
    options: AgentOptions | None = None
    environment: Mapping[str, str] | None = None
    stores: tuple[Path, ...] = ()
    boot_clock: Callable[[], float] = boot_clock
    utc_clock: Callable[[], float] = time.time
    tell: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class HandOverReport:
    """What would be done, or what was: `outcome` is None (dry run), `new`, `old`, `stuck` or `left`.

    `left`: a second signal ended the supervisor; the next one goes on where it was. `ended` are roles
    (`task/role`) of kept tasks that had ended by themselves: no step starts those again.
    """

    node: str
    steps: tuple[Transition, ...]
    outcome: str | None = None
    reason: str = ""
    running: str | None = None
    costs: tuple[SwitchRecord, ...] = ()
    notes: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


def apply(
    manifest: Manifest,
    *,
    folder: Path,
    node: str | None = None,
    dry_run: bool = True,
    first: bool = False,
    settings: Settings | None = None,
) -> HandOverReport:
    """Move this host from the manifest that runs to another one; with `first` nothing may run yet.

    When a step fails, what was done is undone, so that the old manifest runs again. An unfinished
    hand-over to the same manifest is continued.
    """
    require_sound(manifest)
    here = host.this_node(manifest, node)
    settings = settings or Settings()
    with _run(folder, here.id, dry_run, settings) as run:
        if run.state.open and run.state.target == manifest.metadata.digest:
            return run.go_on(back=False)
        checks.refuse_open(run.state)
        checks.refuse_stale(run.state, run.plan(run.state.running), manifest, first=first)
        return run.go(manifest, here)


def stop(*, folder: Path, dry_run: bool = True, settings: Settings | None = None) -> HandOverReport:
    """Save and stop everything that runs here; it can be started again with `apply`."""
    if not dry_run and not any((folder / name).exists() for name in (JOURNAL, LOCK, host.STATE_FILE)):
        return HandOverReport("", (), "new")  # nothing was ever started there, and nothing is made there
    with _run(folder, None, dry_run, settings or Settings()) as run:
        if run.state.open and run.state.target is None:
            return run.go_on(back=False)
        checks.refuse_open(run.state)
        running = run.plan(run.state.running)
        if running is None:
            return HandOverReport(run.state.node, (), None if dry_run else "new")
        return run.go(None, host.this_node(running, run.state.node))


def resume(
    *, folder: Path, back: bool = False, dry_run: bool = True, settings: Settings | None = None
) -> HandOverReport:
    """Go on with a hand-over that was left unfinished, or call it off."""
    with _run(folder, None, dry_run, settings or Settings()) as run:
        if not run.state.open:
            raise InputError(
                "no hand-over is unfinished here", got=folder, way_out="name a manifest, or another --folder"
            )
        return run.go_on(back=back)


@contextmanager
def _run(folder: Path, node: str | None, dry_run: bool, settings: Settings) -> Iterator[_Run]:
    """Open a run's folder: for looking, or locked and with its journal open for writing."""
    folder = folder.absolute()
    if not dry_run and node is not None:
        folder.mkdir(parents=True, exist_ok=True)
    dry_run = dry_run or not folder.exists()  # to stop, or to go on, needs something that was started
    with nullcontext() if dry_run else lock_folder(folder):
        state = state_of(read_journal(folder))
        if node is not None and state.node not in ("", node):
            raise LaunchError("the folder belongs to another node", got=node, allowed=state.node)
        checks.refuse_elsewhere(state, socket.gethostname(), force=settings.force)
        host.refuse_survivors(host.read_state(folder))  # a dry run offers nothing that would be refused
        if dry_run:
            yield _Run(folder, state, None, settings)
            return
        journal = open_journal(folder, boot_clock=settings.boot_clock, utc_clock=settings.utc_clock)
        for line in journal.notes:
            settings.tell(line)
        if not journal.entries and node is not None:
            own = psutil.Process()
            identity = f"{own.pid}-{own.create_time():.2f}-{settings.boot_clock():.6f}"
            journal.append(r.Opened(launch_id=identity, node=node, working_folder=str(Path.cwd())))
        yield _Run(folder, state_of(journal.entries), journal, settings)


@dataclass
class _Run:
    """A run's folder while somebody looks at it or acts."""

    folder: Path
    state: State
    journal: Journal | None
    settings: Settings

    def plan(self, digest: str | None) -> Manifest | None:
        """Read a manifest that was kept here."""
        return None if digest is None else read_plan(self.folder, digest)

    def goal(self, manifest: Manifest | None, node: str) -> Goal:
        """Take from a manifest what belongs to this node."""
        agents = () if manifest is None else agents_of(manifest, self.settings.options)
        return Goal.of(manifest, agents, node)

    def go(self, target: Manifest | None, here: NodeEntry) -> HandOverReport:
        """Begin a hand-over and carry it out."""
        before = self.plan(self.state.running)
        old, new = self.goal(before, here.id), self.goal(target, here.id)
        steps = moves.steps_to(
            self.state, new.wanted, live_starts(self.state.processes), (*old.joint, *new.joint)
        )
        checks.refuse_unsafe(self.state, before, target, new, steps, here.id, force=self.settings.force)
        inherited = self.inherited()
        arriving = {step.task for step in steps if step.action not in ("keep", "stop")}
        agents = [agent for (task, _), agent in new.agents.items() if task in arriving]
        if self.journal is None:
            return HandOverReport(here.id, steps, ended=self.ended(steps))
        host.check_visible(here, agents, inherited)
        host.check_programs(agents, inherited)
        host.check_gpus_free(
            here,
            agents,
            self.settings.check_gpus,
            allow_unknown=self.settings.allow_unknown_gpus,
            held={gpu for one in self.state.processes for gpu in one.gpus},
        )
        if target is not None:
            keep_plan(self.folder, target)
        supervisor = self.supervisor(here, old, new)
        supervisor.begin(target, self.settings.force)
        return self.carry_out(supervisor)

    def go_on(self, *, back: bool) -> HandOverReport:
        """Continue an open hand-over, where it was or in the other direction."""
        before, target = self.plan(self.state.running), self.plan(self.state.target)
        known = target if target is not None else before
        assert known is not None
        here = host.this_node(known, self.state.node)
        if self.journal is None:
            return HandOverReport(here.id, self.state.steps, reason=self.state.stuck or self.state.reason)
        supervisor = self.supervisor(here, self.goal(before, here.id), self.goal(target, here.id))
        if self.state.stuck or (back and not self.state.back):
            supervisor.settle()
            supervisor.go_back(self.state.reason or "called off", force=self.settings.force)
        return self.carry_out(supervisor)

    def ended(self, steps: tuple[Transition, ...]) -> tuple[str, ...]:
        """Name the roles of tasks that these steps keep whose process has ended."""
        kept = {step.task for step in steps if step.action == "keep"}
        live = live_starts(self.state.processes)
        gone = [one for one in self.state.processes if one.task in kept and one.start not in live]
        return tuple(f"{one.task}/{one.role}" for one in gone)

    def show_running(self, state: State) -> None:
        """Keep what runs as the folder's manifest, so that `solve --from FOLDER` plans from it."""
        running = self.plan(state.running)
        if not state.open and running is not None:
            write_atomically(self.folder / CURRENT, manifest_to_json(running).encode())
        elif not state.open:
            (self.folder / CURRENT).unlink(missing_ok=True)

    def supervisor(self, here: NodeEntry, old: Goal, new: Goal) -> Supervisor:
        """Make the one that acts."""
        assert self.journal is not None
        settings = self.settings
        where = Host(self.folder, here, settings.check_gpus, settings.allow_unknown_gpus, self.inherited())
        return Supervisor(
            self.journal, where, old, new, settings.deadlines, settings.tell, settings.boot_clock
        )

    def keep_costs(self, measured: tuple[SwitchRecord, ...]) -> None:
        """Add what moves cost to the stores; the hand-over is over, whether or not there is room for that."""
        for store in (self.folder / STORE, *self.settings.stores):
            try:
                costs.append_costs(store, measured)
            except OSError as problem:
                self.settings.tell(f"what it cost is not kept in {store}: {problem.strerror or problem}")

    def inherited(self) -> dict[str, str]:
        """Give what roles inherit."""
        return dict(os.environ if self.settings.environment is None else self.settings.environment)

    def carry_out(self, supervisor: Supervisor) -> HandOverReport:
        """Supervise until it is over, and keep what it cost."""
        with host.hear_signals(supervisor.interrupt):
            supervisor.run()
        state = supervisor.state
        steps = supervisor.steps
        measured: tuple[SwitchRecord, ...] = ()
        if not state.open and not supervisor.went_back:
            measured = costs.costs_of(state, steps, supervisor.host.node, supervisor.journal.entries[-1].at)
        self.show_running(state)
        self.keep_costs(measured)
        outcome = (
            "stuck" if state.stuck else "left" if state.open else "old" if supervisor.went_back else "new"
        )
        reason = state.stuck or (state.reason if outcome != "new" else "")
        return HandOverReport(
            supervisor.host.node.id,
            steps,
            outcome,
            reason,
            state.running,
            measured,
            supervisor.journal.notes,
            _Run(self.folder, state, None, self.settings).ended(steps),
        )

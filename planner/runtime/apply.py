"""Move what runs on this host to another manifest, or stop it: check, refuse or supervise.

A dry run is the default. Only processes that carry the mark of this folder's run are ever signalled.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import psutil

from libra_plan.errors import InputError, LaunchError, few, writing
from libra_plan.planner.launchers.agents import agents_of
from libra_plan.planner.launchers.check import require_sound_manifest
from libra_plan.planner.launchers.document import manifest_to_json
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, Transition
from libra_plan.planner.launchers.store import CURRENT, LOCK, lock_folder, manifest_of_run
from libra_plan.planner.runtime import checks, costs, gpus, host, moves
from libra_plan.planner.runtime import journal as r
from libra_plan.planner.runtime.costs import StepForecast
from libra_plan.planner.runtime.moves import Goal
from libra_plan.planner.runtime.processes import hear_signals, live_starts
from libra_plan.planner.runtime.settings import RUN_FOLDER, HandOverSettings
from libra_plan.planner.runtime.state import RunState, keep_manifest, read_kept_manifest, state_of
from libra_plan.planner.runtime.supervisor import Supervisor
from libra_plan.profiles.durable import write_atomically
from libra_plan.profiles.switch_costs import SwitchRecord

__all__ = ["START_AGAIN", "HandOverReport", "apply", "resume", "stop"]

START_AGAIN = (
    "see its log; `libra-plan stop --yes`, then `libra-plan launch MANIFEST --detach --yes` start all again"
)
_ENDED = "ended by itself, and no step starts it again"
_ENDINGS = {
    "old": (
        "the hand-over was called off, and what ran before runs again",
        "see the logs of what failed, then apply a new plan",
    ),
    "stuck": (
        "the hand-over failed, and so did the way back: what runs is neither plan",
        "see `libra-plan status`, clear what is named, then `libra-plan apply --yes`",
    ),
    "left": (
        "the hand-over was left unfinished",
        "`libra-plan apply --yes` finishes it, `libra-plan apply --back --yes` calls it off",
    ),
}


_DEFAULT = HandOverSettings()


@dataclass(frozen=True)
class HandOverReport:
    """The steps of a hand-over and its result: `outcome` is None (dry run), `new`, `old`, `stuck` or `left`.

    `left`: a second signal ended the supervisor; the next one goes on where it was. `ended` are roles
    (`task/role`) of kept tasks that had ended by themselves: no step starts those again. `forecast`
    has what each step should cost.
    """

    node: str
    steps: tuple[Transition, ...]
    outcome: str | None = None
    reason: str = ""
    running: str | None = None
    costs: tuple[SwitchRecord, ...] = ()
    notes: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    forecast: tuple[StepForecast, ...] = ()

    def require_success(self) -> None:
        """Raise a LaunchError unless it was a dry run, or what was asked for runs whole."""
        if self.outcome == "new" and self.ended:
            raise LaunchError(f"{few(self.ended)} {_ENDED}", way_out=START_AGAIN)
        if self.outcome == "old" and self.running is None:
            what, way_out = (
                "not every role could be started, so nothing runs",
                "mend what is named, then start again",
            )
        elif self.outcome in _ENDINGS:
            what, way_out = _ENDINGS[self.outcome]
        else:
            return
        raise LaunchError(what, got=self.reason or None, way_out=way_out)

    @property
    def ended_text(self) -> str:
        """Return which roles had ended by themselves, and how to start them again."""
        return f"{few(self.ended)} {_ENDED}; {START_AGAIN}"


def apply(
    run: Manifest | Path | str,
    *,
    folder: Path | str = RUN_FOLDER,
    node: str | None = None,
    dry_run: bool = True,
    first: bool = False,
    settings: HandOverSettings = _DEFAULT,
) -> HandOverReport:
    """Move this host from the manifest that runs to another one.

    When a step fails, what was done is undone, so that the old manifest runs again. An unfinished
    hand-over to the same manifest is continued.

    Parameters
    ----------
    run
        A manifest, its file, or the folder that `solve` wrote.
    folder
        Folder of the run: journal, logs and what runs.
    node
        Which node of the manifest this host is; found by name or address unless given.
    dry_run
        List the steps and touch nothing.
    first
        Nothing may run yet: the roles are started and outlive this call.
    settings
        How the hand-over is done.

    Returns
    -------
    HandOverReport
        The steps, how it ended, and what it cost; `require_success` raises where it did not succeed.

    Raises
    ------
    LaunchError
        If the hand-over is not safe, or another one is unfinished.
    LockedError
        If another supervisor is at work in the folder.
    InputError
        If the manifest, the node or the folder is not to be used.

    Examples
    --------
    >>> import libra_plan as lp
    >>> manifest = lp.solve("profiles/", gpus=8).save("run/")
    >>> [step.action for step in lp.apply("run/").steps]
    ['start', 'start', 'start']
    """
    manifest = manifest_of_run(run)
    require_sound_manifest(manifest)
    here = host.this_node(manifest, node)
    with _opened(folder, here.id, dry_run, settings) as opened:
        if opened.state.open and opened.state.target == manifest.metadata.digest:
            return opened.go_on(back=False)
        checks.refuse_open(opened.state)
        checks.refuse_stale(opened.state, opened.kept(opened.state.running), manifest, first=first)
        return opened.go(manifest, here)


def stop(
    folder: Path | str = RUN_FOLDER, *, dry_run: bool = True, settings: HandOverSettings = _DEFAULT
) -> HandOverReport:
    """Save and stop everything that runs here; `apply` can start it again.

    Parameters
    ----------
    folder
        Folder of the run.
    dry_run
        List the steps and touch nothing.
    settings
        How it is done.

    Returns
    -------
    HandOverReport
        The steps, and how it ended.

    Raises
    ------
    LaunchError
        If it is not safe, such as a task that trains and has no checkpoint folder.
    LockedError
        If another supervisor is at work in the folder.

    Examples
    --------
    >>> import libra_plan as lp
    >>> lp.stop(dry_run=False).outcome
    'new'
    """
    folder = Path(folder)
    if not dry_run and not any((folder / name).exists() for name in (r.JOURNAL, LOCK, host.STATE_FILE)):
        return HandOverReport("", (), "new")  # nothing was ever started there, so no folder is made
    with _opened(folder, None, dry_run, settings) as opened:
        if opened.state.open and opened.state.target is None:
            return opened.go_on(back=False)
        checks.refuse_open(opened.state)
        running = opened.kept(opened.state.running)
        if running is None:
            return HandOverReport(opened.state.node, (), None if dry_run else "new")
        return opened.go(None, host.this_node(running, opened.state.node))


def resume(
    folder: Path | str = RUN_FOLDER,
    *,
    back: bool = False,
    dry_run: bool = True,
    settings: HandOverSettings = _DEFAULT,
) -> HandOverReport:
    """Continue an unfinished hand-over, or call it off.

    Parameters
    ----------
    folder
        Folder of the run.
    back
        Call it off: what ran before runs again.
    dry_run
        List the steps and touch nothing.
    settings
        How it is done.

    Returns
    -------
    HandOverReport
        The steps, and how it ended.

    Raises
    ------
    InputError
        If no hand-over is unfinished in the folder.
    LockedError
        If another supervisor is at work in the folder.

    Examples
    --------
    >>> import libra_plan as lp
    >>> lp.resume(back=True)
    Traceback (most recent call last):
    libra_plan.errors.InputError: no hand-over is unfinished here; ...
    """
    with _opened(folder, None, dry_run, settings) as opened:
        if not opened.state.open:
            raise InputError(
                "no hand-over is unfinished here",
                got=folder,
                way_out="name a manifest, or another folder (--folder)",
            )
        return opened.go_on(back=back)


@contextmanager
def _opened(
    where: Path | str, node: str | None, dry_run: bool, settings: HandOverSettings
) -> Iterator[_OpenRun]:
    """Open a run's folder: to read it, or locked and with its journal open for writing."""
    folder = Path(where).absolute()
    with writing(Path(where)):
        if not dry_run and node is not None:
            folder.mkdir(parents=True, exist_ok=True)
        dry_run = dry_run or not folder.exists()  # to stop, or to go on, needs something that was started
        with nullcontext() if dry_run else lock_folder(folder):
            state = state_of(r.read_journal(folder))
            if node is not None and state.node not in ("", node):
                raise LaunchError("the folder belongs to another node", got=node, allowed=state.node)
            checks.refuse_elsewhere(state, socket.gethostname(), force=settings.force)
            host.refuse_survivors(host.read_state(folder))  # a dry run offers nothing that would be refused
            if dry_run:
                yield _OpenRun(folder, state, None, settings)
                return
            journal = r.open_journal(folder, boot_clock=settings.boot_clock, utc_clock=settings.utc_clock)
            for line in journal.notes:
                settings.notes(line)
            if not journal.entries and node is not None:
                own = psutil.Process()
                identity = f"{own.pid}-{own.create_time():.2f}-{settings.boot_clock():.6f}"
                journal.append(r.Opened(launch_id=identity, node=node, working_folder=str(Path.cwd())))
            yield _OpenRun(folder, state_of(journal.entries), journal, settings)


@dataclass
class _OpenRun:
    """A run's folder, opened to read (no journal) or to act."""

    folder: Path
    state: RunState
    journal: r.RunJournal | None
    settings: HandOverSettings

    def kept(self, digest: str | None) -> Manifest | None:
        """Read a manifest that was kept here."""
        return read_kept_manifest(self.folder, digest)

    def goal(self, manifest: Manifest | None, node: str) -> Goal:
        """Return the part of a manifest that belongs to this node."""
        agents = () if manifest is None else agents_of(manifest, self.settings.options)
        return Goal.of(manifest, agents, node)

    def go(self, target: Manifest | None, here: NodeEntry) -> HandOverReport:
        """Start a hand-over and carry it out."""
        settings = self.settings
        before = self.kept(self.state.running)
        old, new = self.goal(before, here.id), self.goal(target, here.id)
        live = live_starts(self.state.processes)
        steps = moves.steps_to(self.state, new.wanted, live, (*old.joint, *new.joint))
        checks.refuse_unsafe(self.state, before, target, new, steps, here.id, force=settings.force)
        if self.journal is None:
            return HandOverReport(
                here.id, steps, ended=self.ended(self.state, steps), forecast=self.forecast(steps, target)
            )
        arriving = {step.task for step in steps if step.action not in ("keep", "stop")}
        agents = [agent for (task, _), agent in new.agents.items() if task in arriving]
        gpus.check_visible(here, agents, self.settings.inherited)
        host.check_programs(agents, self.settings.inherited)
        gpus.check_gpus_free(
            here,
            agents,
            settings.check_gpus,
            allow_unknown=settings.allow_unknown_gpus,
            held={gpu for one in self.state.processes for gpu in one.gpus},
        )
        if target is not None:
            keep_manifest(self.folder, target)
        supervisor = self.supervisor(self.journal, here, old, new)
        supervisor.begin(target, settings.force)
        return self.carry_out(supervisor, target)

    def go_on(self, *, back: bool) -> HandOverReport:
        """Continue an open hand-over, forwards or backwards."""
        state = self.state
        before, target = self.kept(state.running), self.kept(state.target)
        known = target if target is not None else before
        assert known is not None
        here = host.this_node(known, state.node)
        if self.journal is None:
            reason = state.stuck or state.reason
            return HandOverReport(
                here.id, state.steps, reason=reason, forecast=self.forecast(state.steps, target)
            )
        supervisor = self.supervisor(
            self.journal, here, self.goal(before, here.id), self.goal(target, here.id)
        )
        if state.stuck or (back and not state.back):
            supervisor.settle()
            supervisor.go_back(state.reason or "called off", force=self.settings.force)
        return self.carry_out(supervisor, target)

    def ended(self, state: RunState, steps: tuple[Transition, ...]) -> tuple[str, ...]:
        """Name the roles of tasks that these steps keep whose process has ended."""
        kept = {step.task for step in steps if step.action == "keep"}
        live = live_starts(state.processes)
        gone = [one for one in state.processes if one.task in kept and one.start not in live]
        return tuple(f"{one.task}/{one.role}" for one in gone)

    def forecast(self, steps: tuple[Transition, ...], target: Manifest | None) -> tuple[StepForecast, ...]:
        """Forecast what steps cost, first from what was recorded in the profiles, then here."""
        prices, starts = costs.known_prices(reversed(self.settings.stores(self.folder)), self.settings.notes)
        return costs.forecasts(steps, target, prices, starts)

    def supervisor(self, journal: r.RunJournal, here: NodeEntry, old: Goal, new: Goal) -> Supervisor:
        """Make the supervisor."""
        return Supervisor(journal, self.folder, here, old, new, self.settings)

    def carry_out(self, supervisor: Supervisor, target: Manifest | None) -> HandOverReport:
        """Supervise until the hand-over is finished, and record its costs."""
        with hear_signals(supervisor.interrupt):
            supervisor.run()
        state, steps, node = supervisor.state, supervisor.steps, supervisor.node
        measured: tuple[SwitchRecord, ...] = ()
        if not state.open and not supervisor.went_back:
            measured = costs.costs_of(state, steps, node, supervisor.journal.entries[-1].at)
        self.show_running(state)
        for store in self.settings.stores(self.folder):
            try:
                costs.append_costs(store, measured)
            except OSError as problem:  # the hand-over has succeeded even if its costs cannot be stored
                self.settings.notes(f"what it cost is not kept in {store}: {problem.strerror or problem}")
        if state.open:
            outcome = "stuck" if state.stuck else "left"
        else:
            outcome = "old" if supervisor.went_back else "new"
        return HandOverReport(
            node=node.id,
            steps=steps,
            outcome=outcome,
            reason=state.stuck or (state.reason if outcome != "new" else ""),
            running=state.running,
            costs=measured,
            notes=supervisor.journal.notes,
            ended=self.ended(state, steps),
            forecast=self.forecast(steps, target),
        )

    def show_running(self, state: RunState) -> None:
        """Keep what runs as the folder's manifest, so that `solve --from FOLDER` plans from it."""
        running = self.kept(state.running)
        if not state.open and running is not None:
            write_atomically(self.folder / CURRENT, manifest_to_json(running).encode())
        elif not state.open:
            (self.folder / CURRENT).unlink(missing_ok=True)

"""`replan`, `watch`, `history` and `replay`: the loop, its record, and what it would have done otherwise."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.errors import writing
from libra_plan.cli.flags import (
    AheadSteps,
    AllowPrior,
    ClusterPath,
    Form,
    FormOption,
    GpuClass,
    Gpus,
    Local,
    PerNode,
    PolicyName,
    PolicyOption,
    Profiles,
    Seed,
    with_options,
)
from libra_plan.cli.kept_configurations import MOST_MIB, ColumnsMib, kept_configurations
from libra_plan.errors import LockedError, StateError

if TYPE_CHECKING:
    from libra_plan.cli.replan_inputs import Sources
    from libra_plan.planner.controller.configuration_values import Memo
    from libra_plan.planner.controller.policy import ReplanPolicy
    from libra_plan.planner.controller.runner import Report
    from libra_plan.planner.controller.state_store import StateStore

__all__ = ["Folder", "StateOption", "opened", "register", "require_folder"]

LOCK = ".replan.lock"
_POLL_S = 0.2

Folder = Annotated[Path, typer.Option("--run", help="Folder of the running plan, as `solve --out` wrote it.")]
StateOption = Annotated[
    str | None,
    typer.Option(
        "--state", help="The record: a SQLite file or a postgresql+psycopg:// URL; default RUN/replan.db."
    ),
]
PolicyPath = Annotated[
    Path | None, typer.Option("--replan-policy", help="The loop's policy file; defaults hold without one.")
]
Counters = Annotated[
    list[Path] | None,
    typer.Option("--telemetry", help="Recordings of counters, or their folder; default RUN/telemetry."),
]
MonitorPath = Annotated[
    Path | None, typer.Option("--monitor", help="Recording of `libra-plan monitor`: tells of lost GPUs.")
]
Observations = Annotated[
    Path | None,
    typer.Option("--observations", help="Observations from elsewhere, as a file (docs/replan.md)."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Decide and record, but apply nothing.")]
Wait = Annotated[
    float, typer.Option("--wait", help="Seconds to wait for a run that holds the folder.", min=0.0)
]

_REPLAN = (
    "Look once at what runs, and write a better plan when a change has paid for itself.\n\n"
    "Example: libra-plan replan profiles/ --run run/ --cluster cluster.yaml --dry-run\n\n"
    "For cron and CronJobs: a second run leaves with exit code 5, or waits with --wait. `libra-plan apply` "
    "then moves what runs to the new manifest."
)
_WATCH = (
    "Look again and again, every `every_s` of the policy; SIGHUP reads the policy anew.\n\n"
    "Example: libra-plan watch profiles/ --run run/ --cluster cluster.yaml --port 9108\n\n"
    "With --port, /healthz says whether looks succeed and /metrics counts them."
)
_HISTORY = (
    "List looks, or say everything about one: what was weighed, what decided, what came of it.\n\n"
    "Example: libra-plan history --run run/ --why 17"
)
_REPLAY = (
    "Derive recorded decisions again from their recorded inputs, or under another policy.\n\n"
    "Example: libra-plan replay --run run/ --policy careful.yaml\n\n"
    "Without a policy every decision and state must come out bit for bit; exit code 1 when one does not."
)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(help=_REPLAN)(replan)
    app.command(help=_WATCH)(watch)
    app.command(help=_HISTORY)(history)
    app.command(help=_REPLAY)(replay)


@contextmanager
def opened(
    folder: Path, state: str | None, *, create: bool = True, lead: bool = False
) -> Iterator[StateStore]:
    """Open the record; text with `://` is a URL. With `lead` the lease is given back at the end."""
    import socket

    from libra_plan.planner.controller.state_store import StateStore
    from libra_plan.planner.controller.store_open import DATABASE

    where: Path | str = folder / DATABASE if state is None else state if "://" in state else Path(state)
    holder = f"{socket.gethostname()}:{os.getpid()}"
    with writing(folder):
        store = StateStore.open(where, create=create, holder=holder)
    try:
        yield store
    finally:
        if lead:
            store.resign()
        store.close()


@contextmanager
def _locked(folder: Path, wait_s: float) -> Iterator[None]:
    """Hold the folder's lock for a look; the kernel gives it back however the run ends (A077)."""
    from libra_plan.planner.launchers.store import lock_folder

    ends = time.monotonic() + wait_s
    while True:
        try:
            with lock_folder(folder, LOCK):
                yield
                return
        except LockedError:
            if time.monotonic() >= ends:
                raise
            time.sleep(_POLL_S)


@dataclass(frozen=True)
class Looking:
    """What `replan` and `watch` are told alike: what to look at, and by which rules."""

    profiles: Profiles
    run: Folder = Path("run")
    gpus: Gpus = None
    gpus_per_node: PerNode = 8
    gpu_class: GpuClass = None
    cluster: ClusterPath = None
    local: Local = False
    policy: PolicyOption = PolicyName.THROUGHPUT
    replan_policy: PolicyPath = None
    telemetry: Counters = None
    monitor: MonitorPath = None
    observations: Observations = None
    state: StateOption = None
    dry_run: DryRun = False
    allow_prior: AllowPrior = False
    seed: Seed = 0
    ahead_steps: AheadSteps = None

    @property
    def sources(self) -> Sources:
        """Give where a look reads from."""
        from libra_plan.cli.replan_inputs import Sources
        from libra_plan.planner.inputs.cluster import ClusterFlags

        return Sources(
            self.profiles,
            ClusterFlags(self.gpus, self.gpus_per_node, self.gpu_class, self.cluster, self.local),
            self.run,
            self.policy.value,
            tuple(self.telemetry) if self.telemetry else (self.run / "telemetry",),
            self.monitor,
            self.observations,
            allow_prior=self.allow_prior,
            seed=self.seed,
            ahead_steps=self.ahead_steps,
        )


@with_options(Looking)
def replan(
    given: Looking, wait: Wait = 0.0, columns_mib: ColumnsMib = MOST_MIB, form: FormOption = Form.TABLE
) -> None:
    """Look once."""
    from libra_plan.planner.controller.configuration_values import Memo
    from libra_plan.planner.controller.policy import read_policy

    rules = read_policy(given.replan_policy)
    require_folder(given.run)
    with (
        kept_configurations(columns_mib) as columns,
        _locked(given.run, wait),
        opened(given.run, given.state, lead=True) as store,
    ):
        report = _look(given.sources, store, rules, given.dry_run, Memo(configurations=columns))
    _print_report(report, form)


def require_folder(run: Path) -> None:
    """Refuse a folder that is not there: a slip of the pen would begin a record in a new one."""
    if not run.is_dir():
        raise StateError(
            "there is no plan to look after",
            got=run,
            way_out=f"make one first: libra-plan solve profiles/ --out {run}",
        )


def _look(
    sources: Sources, store: StateStore, policy: ReplanPolicy, dry_run: bool, memo: Memo | None
) -> Report:
    from libra_plan.cli.replan_inputs import now, sense
    from libra_plan.planner.controller.runner import one_look

    store.lead(3.0 * policy.every_s)
    with writing(sources.folder):
        report = one_look(
            sources.folder,
            store,
            lambda parent, book, state: sense(sources, parent, book, state, policy.trust),
            policy,
            now,
            dry_run=dry_run,
            memo=memo,
        )
    for line in report.notes:
        render.note(line)
    return report


def _print_report(report: Report, form: Form) -> None:
    said = report.decision
    if form is not Form.TABLE:
        data = render.as_data(said)
        data.pop("plan", None)
        more = {"look": report.number, "outcome": report.outcome, "generation": report.generation}
        render.print_data({**more, **data}, form.value)
        return
    for line in _lines(report):
        render.print_text(line)


def _lines(report: Report) -> Iterator[str]:
    said = report.decision
    yield f"look {report.number}: {said.rung.value} [{said.rule}] {said.why}"
    for move in said.moves:
        yield (
            f"  {move.task}: {move.action}, {move.gpus_before} → {move.gpus_after} GPUs {move.after}".rstrip()
            + f" ({move.worth:+.4g}, doubt {move.doubt:.4g}, switch {move.switch_s:.3g} s)"
        )
    for step in said.batch_steps:
        yield f"  {step.task}/{step.role}: {step.setting} {step.before:g} → {step.after:g}"
    for order in said.orders:
        yield f"  wanted first: {order}"
    for note in said.notes:
        yield f"  {note}"
    what = {"applied": f"generation {report.generation} written", "dry-run": "dry run: nothing was written"}
    if report.outcome in what:
        yield f"  {what[report.outcome]}"


@with_options(Looking)
def watch(
    given: Looking,
    looks: Annotated[int | None, typer.Option(help="Leave after so many looks.", min=1)] = None,
    port: Annotated[
        int | None, typer.Option(help="Serve /healthz and /metrics on this port.", min=0, max=65535)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
) -> None:
    """Look again and again until told to stop."""
    from libra_plan.cli.watching import Health, Signals, serve, watch_loop
    from libra_plan.planner.controller.configuration_values import Memo
    from libra_plan.planner.controller.policy import read_policy

    rules = read_policy(given.replan_policy)
    require_folder(given.run)
    sources, memo, health = given.sources, Memo(), Health()

    def once(current: ReplanPolicy) -> Report:
        with _locked(given.run, 0.0):
            report = _look(sources, store, current, given.dry_run, memo)
        for line in _lines(report):
            render.print_text(line)
        return report

    serving = nullcontext() if port is None else serve(host, port, health)
    with opened(given.run, given.state, lead=True) as store, serving, Signals() as signals:
        watch_loop(once, rules, lambda: read_policy(given.replan_policy), health, signals, looks)


def history(
    run: Folder = Path("run"),
    state: StateOption = None,
    why: Annotated[int | None, typer.Option(help="Say everything about this look.")] = None,
    newest: Annotated[int, typer.Option(help="List so many looks.", min=1)] = 20,
    changes: Annotated[
        bool, typer.Option("--changes", help="List only looks that changed something.")
    ] = False,
    form: FormOption = Form.TABLE,
) -> None:
    """List looks, or explain one."""
    from libra_plan.cli.replan_history import print_history, print_why

    with opened(run, state, create=False) as store:
        if why is not None:
            print_why(store, why, form)
        else:
            print_history(store, newest, changes, form)


def replay(
    run: Folder = Path("run"),
    state: StateOption = None,
    replan_policy: Annotated[
        Path | None,
        typer.Option("--policy", "--replan-policy", help="Say what this policy file would have done."),
    ] = None,
    first: Annotated[int, typer.Option("--from", help="First look to derive.", min=0)] = 0,
    form: FormOption = Form.TABLE,
) -> None:
    """Derive decisions again."""
    from libra_plan.cli.replan_history import print_replay
    from libra_plan.planner.controller.policy import read_policy

    other = None if replan_policy is None else read_policy(replan_policy)
    with opened(run, state, create=False) as store:
        print_replay(store, first, other, form)

"""`replan`, `watch`, `history` and `replay`: the loop, its record, and what it would have done otherwise."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
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

if TYPE_CHECKING:
    from libra_plan.cli.replan_inputs import Sources

__all__ = ["Folder", "StateOption", "register"]


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
    from libra_plan.cli.replan_inputs import facts_of
    from libra_plan.planner.controller.configuration_values import ValueCache
    from libra_plan.planner.controller.hysteresis import read_policy
    from libra_plan.planner.controller.replan import replan as look
    from libra_plan.planner.report.replan_text import look_data, look_text

    policy = read_policy(given.replan_policy)
    with kept_configurations(columns_mib) as configurations:
        done = look(
            given.run,
            facts_of(given.sources, policy),
            policy,
            state=given.state,
            dry_run=given.dry_run,
            wait_s=wait,
            cache=ValueCache(configurations=configurations),
            notes=render.note,
        )
    if form is Form.TABLE:
        render.print_text(look_text(done))
    else:
        render.print_data(look_data(done), form.value)


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
    from libra_plan.cli.replan_inputs import facts_of
    from libra_plan.planner.controller.hysteresis import read_policy
    from libra_plan.planner.controller.watch import watch as look_again
    from libra_plan.planner.report.replan_text import look_text

    look_again(
        given.run,
        lambda policy: facts_of(given.sources, policy),
        lambda: read_policy(given.replan_policy),
        state=given.state,
        dry_run=given.dry_run,
        looks=looks,
        address=None if port is None else (host, port),
        show=lambda done: render.print_text(look_text(done)),
        notes=render.note,
    )


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
    from libra_plan.planner.controller.history import explain_look
    from libra_plan.planner.controller.history import history as look_back
    from libra_plan.planner.report import replan_text as report

    if why is not None:
        found = explain_look(run, why, state=state)
        if form is Form.TABLE:
            render.print_text(report.explained_text(found))
        else:
            render.print_data(report.explained_data(found), form.value)
        return
    rows = look_back(run, newest=newest, changes=changes, state=state)
    if form is Form.TABLE:
        render.print_text(report.history_text(rows, render.page()))
    else:
        render.print_data(report.history_data(rows), form.value)


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
    from libra_plan.planner.controller.history import replay as derive
    from libra_plan.planner.controller.hysteresis import read_policy
    from libra_plan.planner.report.replan_text import replay_data, replay_text

    policy = None if replan_policy is None else read_policy(replan_policy)
    begun = time.monotonic()
    found = derive(run, policy=policy, first=first, state=state)
    seconds = time.monotonic() - begun
    if form is Form.TABLE:
        render.print_text(replay_text(found, other_policy=policy is not None))
        render.note(f"{len(found.looks) / max(seconds, 1e-9):.0f} looks a second")
    else:
        render.print_data(replay_data(found, seconds), form.value)
    passed = found.passed_over
    if passed:
        looks = f"look {passed[0]}" if len(passed) == 1 else f"looks {passed[0]} to {passed[-1]}"
        render.note(f"passed over: {looks}, before the first of which the state was kept")
    if found.otherwise and policy is None:
        raise RuntimeError(f"{len(found.otherwise)} looks did not come out as recorded, a defect of ours")

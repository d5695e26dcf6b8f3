"""`replan`, `watch`, `history` and `replay`: the loop, its record, and what it would have done otherwise."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import libra_plan as lp
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
from libra_plan.cli.program import app

__all__ = ["Folder", "StateOption"]

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
ObservationsPath = Annotated[
    Path | None,
    typer.Option("--observations", help="Observations from elsewhere, as a file (docs/replan.md)."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Decide and record, but apply nothing.")]
Wait = Annotated[
    float, typer.Option("--wait", help="Seconds to wait for a run that holds the folder.", min=0.0)
]

_REPLAN = (
    "Observe once what runs, and write a better plan when a change pays for itself.\n\n"
    "Example: libra-plan replan profiles/ --run run/ --cluster cluster.yaml --dry-run\n\n"
    "For cron and CronJobs: a second run leaves with exit code 5, or waits with --wait. `libra-plan apply` "
    "then moves what runs to the new manifest."
)
_WATCH = (
    "Re-plan every `every_s` seconds of the policy; SIGHUP reads the policy again.\n\n"
    "Example: libra-plan watch profiles/ --run run/ --cluster cluster.yaml --port 9108\n\n"
    "With --port, /healthz says whether looks succeed and /metrics counts them."
)
_HISTORY = (
    "List looks, or explain one: what was considered, what decided, and the outcome.\n\n"
    "Example: libra-plan history --run run/ --why 17"
)
_REPLAY = (
    "Derive recorded decisions again from their recorded inputs, or under another policy.\n\n"
    "Example: libra-plan replay --run run/ --policy careful.yaml\n\n"
    "Without a policy every decision and state must come out bit for bit; exit code 1 when one does not."
)


@dataclass(frozen=True)
class _Asked:
    """The flags that `replan` and `watch` have in common."""

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
    observations: ObservationsPath = None
    state: StateOption = None
    dry_run: DryRun = False
    allow_prior: AllowPrior = False
    seed: Seed = 0
    ahead_steps: AheadSteps = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The flags as arguments of `libra_plan.replan`, but for the profiles."""
        named = {name: value for name, value in vars(self).items() if name != "profiles"}
        return {**named, "policy": self.policy.value, "notes": render.note}


@app.command("replan", help=_REPLAN)
@with_options(_Asked)
def _replan(asked: _Asked, wait: Wait = 0.0, form: FormOption = Form.TABLE) -> None:
    from libra_plan.planner.report.replan_text import look_data, look_text

    done = lp.replan(asked.profiles, wait_s=wait, **asked.arguments)
    if form is Form.TABLE:
        render.print_text(look_text(done))
    else:
        render.print_data(look_data(done), form.value)


@app.command("watch", help=_WATCH)
@with_options(_Asked)
def _watch(
    asked: _Asked,
    looks: Annotated[int | None, typer.Option(help="Leave after so many looks.", min=1)] = None,
    port: Annotated[
        int | None, typer.Option(help="Serve /healthz and /metrics on this port.", min=0, max=65535)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
) -> None:
    from libra_plan.planner.report.replan_text import look_text

    lp.watch(
        asked.profiles,
        looks=looks,
        port=port,
        host=host,
        show=lambda done: render.print_line(look_text(done)),
        **asked.arguments,
    )


@app.command("history", help=_HISTORY)
def _history(
    run: Folder = Path("run"),
    state: StateOption = None,
    why: Annotated[int | None, typer.Option(help="Say everything about this look.")] = None,
    newest: Annotated[int, typer.Option(help="List so many looks.", min=1)] = 20,
    changes: Annotated[
        bool, typer.Option("--changes", help="List only looks that changed something.")
    ] = False,
    form: FormOption = Form.TABLE,
) -> None:
    from libra_plan.planner.report import replan_text as report

    if why is not None:
        found = lp.explain_look(run, why, state=state)
        if form is Form.TABLE:
            render.print_text(report.explained_text(found))
        else:
            render.print_data(report.explained_data(found), form.value)
        return
    rows = lp.history(run, newest=newest, changes=changes, state=state)
    if form is Form.TABLE:
        render.print_text(report.history_text(rows, render.page()))
    else:
        render.print_data(report.history_data(rows), form.value)


@app.command("replay", help=_REPLAY)
def _replay(
    run: Folder = Path("run"),
    state: StateOption = None,
    replan_policy: Annotated[
        Path | None,
        typer.Option("--policy", "--replan-policy", help="Say what this policy file would have done."),
    ] = None,
    first: Annotated[int, typer.Option("--from", help="First look to derive.", min=0)] = 0,
    form: FormOption = Form.TABLE,
) -> None:
    from libra_plan.planner.report.replan_text import passed_over_text, replay_data, replay_text

    begun = time.monotonic()
    found = lp.replay(run, replan_policy=replan_policy, first=first, state=state)
    seconds = time.monotonic() - begun
    if form is Form.TABLE:
        render.print_text(replay_text(found, other_policy=replan_policy is not None))
        render.note(f"{len(found.looks) / max(seconds, 1e-9):.0f} looks a second")
    else:
        render.print_data(replay_data(found, seconds), form.value)
    if found.passed_over:
        render.note(passed_over_text(found))
    if found.otherwise and replan_policy is None:
        raise RuntimeError(f"{len(found.otherwise)} looks did not come out as recorded, a defect of ours")

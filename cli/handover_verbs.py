"""`apply`, `status` and `stop`: move what runs on this host to another manifest, and look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import libra_plan as lp
from libra_plan.cli import render
from libra_plan.cli.flags import Form
from libra_plan.cli.program import app
from libra_plan.errors import InputError

__all__ = ["RUN_FOLDER", "print_hand_over"]

RUN_FOLDER = Path("libra-plan-run")
Folder = Annotated[Path, typer.Option(help="Folder of the run: journal, logs and what runs.")]
Node = Annotated[str | None, typer.Option(help="Which node of the manifest this host is.")]
Yes = Annotated[bool, typer.Option("--yes", help="Really do it; without it the steps are shown.")]
Force = Annotated[
    bool,
    typer.Option("--force", help="Stop without a checkpoint, and kill what outlives its grace: loses work."),
]
UnknownGpus = Annotated[
    bool, typer.Option("--allow-unknown-gpus", help="Go on even if it is not known whether GPUs are free.")
]
CheckpointWait = Annotated[
    float | None,
    typer.Option("--checkpoint-wait", help="Seconds a task has to save; default: its grace.", min=0.1),
]
StartWindow = Annotated[
    float,
    typer.Option("--start-window", help="Seconds a role that reports nothing must live to count.", min=0.0),
]
CostsInto = Annotated[
    Path | None, typer.Option("--profiles", help="Profiles folder that the measured costs are added to, too.")
]
ReportForm = Annotated[Form, typer.Option("--format", help="How to write the report.")]

_APPLY = (
    "Show the steps from what runs on this host to a manifest; take them with --yes.\n\n"
    "Example: libra-plan apply run/ --yes\n\n"
    "Each task is asked for a checkpoint and stopped when it is complete; a task grows only when the one "
    "that shrinks for it is proven gone. When a step fails, the old manifest runs again. Without a manifest "
    "an unfinished hand-over goes on; --back calls it off."
)
_STATUS = (
    "Compare what runs on this host with what was planned, and name each difference.\n\n"
    "Example: libra-plan status --format json\n\n"
    "Exit code 6 when there is a difference."
)
_STOP = "Save and stop everything that runs here.\n\nExample: libra-plan stop --yes"


@app.command("apply", help=_APPLY)
def _apply(
    manifest: Annotated[Path | None, typer.Argument(help="Manifest file, or the folder of it.")] = None,
    back: Annotated[bool, typer.Option("--back", help="Call an unfinished hand-over off.")] = False,
    yes: Yes = False,
    force: Force = False,
    folder: Folder = RUN_FOLDER,
    node: Node = None,
    unknown_gpus: UnknownGpus = False,
    checkpoint_wait: CheckpointWait = None,
    start_window: StartWindow = 30.0,
    profiles: CostsInto = None,
    form: ReportForm = Form.TABLE,
) -> None:
    if manifest is not None and back:
        raise InputError("--back goes to what ran before and takes no manifest", got=manifest)
    settings = lp.HandOverSettings(
        force=force,
        allow_unknown_gpus=unknown_gpus,
        checkpoint_wait_s=checkpoint_wait,
        start_window_s=start_window,
        profiles=profiles,
        notes=render.note,
    )
    if manifest is None:
        report = lp.resume(folder, back=back, dry_run=not yes, settings=settings)
    else:
        report = lp.apply(manifest, folder=folder, node=node, dry_run=not yes, settings=settings)
    print_hand_over(report, form)


@app.command("stop", help=_STOP)
def _stop(
    yes: Yes = False,
    force: Force = False,
    folder: Folder = RUN_FOLDER,
    checkpoint_wait: CheckpointWait = None,
    form: ReportForm = Form.TABLE,
) -> None:
    settings = lp.HandOverSettings(
        force=force,
        allow_unknown_gpus=True,
        checkpoint_wait_s=checkpoint_wait,
        notes=render.note,
    )
    print_hand_over(lp.stop(folder, dry_run=not yes, settings=settings), form)


def print_hand_over(report: Any, form: Form) -> None:
    """Print a hand-over, and end with the exit code that tells how it ended."""
    from libra_plan.planner.report.run_tables import hand_over_notes, hand_over_text

    if form is Form.TABLE:
        render.print_text(hand_over_text(report, render.page()))
    else:
        render.print_data(render.as_data(report), form.value)
    for line in hand_over_notes(report):
        render.note(line)
    report.require_success()


@app.command("status", help=_STATUS)
def _status(folder: Folder = RUN_FOLDER, form: ReportForm = Form.TABLE) -> None:
    from libra_plan.planner.report.run_tables import status_text

    report = lp.status(folder)
    if form is Form.TABLE:
        render.print_text(status_text(report, render.page()))
        for line in report.notes:
            render.note(line)
    else:
        render.print_data(render.as_data(report), form.value)
    report.require_as_planned()

"""`doctor`: what holds the pipeline back, and what to do about it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

import libra_plan as lp
from libra_plan.cli import render
from libra_plan.cli.errors import printable
from libra_plan.cli.flags import Form, FormOption
from libra_plan.cli.program import app
from libra_plan.cli.throughput_verbs import GpusOfLog, ReaderOption, SamplesOfLog, SourceFormat, TaskOfLog
from libra_plan.errors import InputError, writing

__all__ = ["FOUND"]

FOUND = 7
"""The exit code when something was found: no error, but not nothing either."""
_SHOWN = 5

_DOCTOR = (
    "Find what slows the pipeline down: evidence, cause, remedy, and the most that it can gain.\n\n"
    "Reads what `monitor --out` and libra_plan.counter recorded (or, with --reader, a trainer's log), all of "
    "one run at once. With --manifest findings name tasks and roles, and recorded moves are looked at, too. "
    "What the recordings do not tell is said, and never taken for idle.\n\n"
    "Exit code 7 when a finding is at or above --fail-on.\n\n"
    "Example: libra-plan doctor telemetry/ run/telemetry/ --manifest run/ --picture timeline.svg"
)


class FailOn(str, Enum):
    """From which level on a finding makes the exit code."""

    NOTE = "note"
    WARNING = "warning"
    CRITICAL = "critical"
    NEVER = "never"


@app.command("doctor", help=_DOCTOR)
def _doctor(
    recordings: Annotated[
        list[Path], typer.Argument(help="Folders or files of samples and counts, all of one run.")
    ],
    manifest: Annotated[
        Path | None, typer.Option(help="Manifest, or folder of the plan that ran: whose the GPUs are.")
    ] = None,
    profiles: Annotated[
        Path | None, typer.Option(help="Profiles folder: estimate gains by solving again, with --manifest.")
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="Cluster file of the plan, for --profiles; default: equal nodes.")
    ] = None,
    reader: ReaderOption = SourceFormat.COUNTER,
    task: TaskOfLog = "",
    gpus: GpusOfLog = None,
    samples: SamplesOfLog = None,
    window: Annotated[
        float, typer.Option(metavar="SECONDS", help="Length of a window of samples.", min=1.0, max=600.0)
    ] = 10.0,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Exit with 7 when a finding is at least this bad.")
    ] = FailOn.WARNING,
    picture: Annotated[Path | None, typer.Option(help="File to draw the timeline to (SVG).")] = None,
    form: FormOption = Form.TABLE,
) -> None:
    """Diagnose, print, and return with the exit code whether something was found."""
    if profiles is not None and manifest is None:
        raise InputError("an estimate starts from the plan that runs", got="--profiles without --manifest")
    diagnosis = lp.diagnose(
        recordings,
        run=manifest,
        reader=reader.value,
        task=task,
        gpus=gpus,
        samples=samples,
        window_s=window,
    )
    if profiles is not None and manifest is not None:
        diagnosis = lp.estimate_gains(diagnosis, profiles, manifest, cluster=cluster, notes=render.note)
    if picture is not None:
        from libra_plan.planner.report.timeline_picture import timeline_svg

        with writing(picture):
            picture.write_text(timeline_svg(diagnosis), encoding="utf-8")
        render.note(f"drawn to {printable(picture)}")
    if form is Form.TABLE:
        from libra_plan.planner.report.doctor_text import diagnosis_text

        render.print_text(diagnosis_text(diagnosis))
    else:
        render.print_data(diagnosis.to_dict(), form.value)
    for line in diagnosis.left_out[:_SHOWN]:
        render.note(f"left out: {line}")
    if len(diagnosis.left_out) > _SHOWN:
        render.note(f"left out: {len(diagnosis.left_out) - _SHOWN} more")
    if fail_on is not FailOn.NEVER and diagnosis.is_at_least(fail_on.value):
        raise typer.Exit(FOUND)

"""`monitor` and `summary`: look at GPUs and hosts, record, and sum recordings up."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

import libra_plan as lp
from libra_plan.cli import render
from libra_plan.cli.flags import Form, FormOption
from libra_plan.cli.program import app

_MONITOR = (
    "Look at the GPUs and the host once an interval: load, memory, power, traffic, processes.\n\n"
    "Example: libra-plan monitor --out telemetry/ --prometheus 9401\n\n"
    "What cannot be read is unknown (`?`, null), never 0. A GPU that hangs or is lost removes only itself. "
    "--source is nvml, smi (nvidia-smi), simulated, a recording, or the URL of a DCGM exporter's page or of "
    "a Prometheus. Ctrl-C ends it cleanly."
)
_SUMMARY = (
    "Sum a recording up: mean, peak and percentiles of every reading in each window.\n\n"
    "Example: libra-plan summary telemetry/ --window 600\n\n"
    "A window is laid by monotonic seconds, so clock changes and gaps move no sample. With --last only the "
    "end of the recording is read."
)


class MonitorForm(str, Enum):
    """How samples are written as they are taken."""

    TABLE = "table"
    JSON = "json"
    NONE = "none"


@app.command("monitor", help=_MONITOR)
def _monitor(
    interval: Annotated[float, typer.Option(help="Seconds from one look to the next.", min=0.05)] = 1.0,
    for_s: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", help="End after so many seconds.", min=0.0)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to record into.")] = None,
    keep_mib: Annotated[float, typer.Option(help="Most that is kept of the recording, MiB.", min=1.0)] = 1024,
    keep_days: Annotated[float, typer.Option(help="Oldest that is kept of the recording.", min=0.0)] = 7.0,
    form: Annotated[
        MonitorForm, typer.Option("--format", help="table; json, a line a sample; none, as for a service.")
    ] = MonitorForm.TABLE,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Serve metrics there; without a host to this machine alone."
        ),
    ] = None,
    source: Annotated[str, typer.Option(help="auto, nvml, smi, simulated, a recording, or a URL.")] = "auto",
) -> None:
    """Look, and print every sample."""
    from libra_plan.planner.report.telemetry_tables import sample_lines, sample_text

    texts = {MonitorForm.TABLE: sample_text, MonitorForm.JSON: sample_lines}
    text = texts.get(form)
    lp.monitor(
        source,
        interval_s=interval,
        for_s=for_s,
        out=out,
        keep_mib=keep_mib,
        keep_days=keep_days,
        prometheus=prometheus,
        takers=() if text is None else (lambda samples: render.print_line(text(samples)),),
        notes=render.note,
    )


@app.command("summary", help=_SUMMARY)
def _summary(
    recording: Annotated[
        Path, typer.Argument(help="Folder that `monitor --out` wrote, or one of its parts.")
    ],
    window: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Length of a window; default: everything in one.")
    ] = None,
    last: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Only the end of the recording.", min=0.0)
    ] = None,
    form: FormOption = Form.TABLE,
) -> None:
    """Sum up and print."""
    from libra_plan.planner.report.telemetry_tables import summary_text

    found = lp.summarise_recording(recording, window_s=window, last_s=last, notes=render.note)
    if form is Form.TABLE:
        render.print_text(summary_text(found))
    else:
        render.print_data(render.as_data(found), form.value)

"""`throughput`: what loops get done."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

import libra_plan as lp
from libra_plan.cli import render
from libra_plan.cli.program import app

__all__ = ["GpusOfLog", "Recordings", "SamplesOfLog", "SourceFormat", "TaskOfLog"]

_SHOWN_LEFT_OUT = 5


class SourceFormat(str, Enum):
    """Who wrote the recordings."""

    COUNTER = "counter"
    VERL = "verl"
    NEMO_RL = "nemo-rl"
    SLIME = "slime"
    VLLM = "vllm"


class RateForm(str, Enum):
    """How rates are written."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    PROMETHEUS = "prometheus"


Recordings = Annotated[list[Path], typer.Argument(help="Files, or folders that counters write to.")]
ReaderOption = Annotated[SourceFormat, typer.Option("--reader", help="Whose metrics the files hold.")]
TaskOfLog = Annotated[str, typer.Option("--task", help="The task, for logs that do not name it.")]
GpusOfLog = Annotated[
    int | None, typer.Option("--gpus", help="GPUs of the run, for logs with rates per GPU.", min=1)
]
SamplesOfLog = Annotated[
    int | None, typer.Option("--samples", help="Samples of a step, for logs that do not say.", min=1)
]

_THROUGHPUT = (
    "Report the throughput of every role: tokens, samples and steps per second, waiting time, queues, "
    "staleness.\n\n"
    "Reads what libra_plan.counter writes, or the metrics of verl, NeMo-RL, slime and vLLM; checks that "
    "tokens are what batch and length imply.\n\n"
    "Example: libra-plan throughput run/telemetry --format json"
)


@app.command("throughput", help=_THROUGHPUT)
def _throughput(
    recordings: Recordings,
    reader: ReaderOption = SourceFormat.COUNTER,
    task: TaskOfLog = "",
    gpus: GpusOfLog = None,
    samples: SamplesOfLog = None,
    every_s: Annotated[
        float, typer.Option(help="Length of a stretch, seconds; JSON and YAML list them.", min=1.0, max=1e9)
    ] = 60.0,
    form: Annotated[RateForm, typer.Option("--format", help="How to write the result.")] = RateForm.TABLE,
) -> None:
    """Read, add up and print."""
    from libra_plan.planner.report.telemetry_tables import rate_table

    found = lp.throughput(
        recordings, reader=reader.value, task=task, gpus=gpus, samples=samples, every_s=every_s
    )
    if form is RateForm.PROMETHEUS:
        render.print_text(found.to_prometheus().rstrip("\n"))
    elif form is RateForm.TABLE:
        render.print_text(rate_table(found.totals))
        twice = [f"{each.task}/{each.role} {each.duplicates:,}" for each in found.totals if each.duplicates]
        if twice:
            render.note(f"windows of ranks that another process counts too, counted once: {', '.join(twice)}")
    else:
        render.print_data(render.as_data(found), form.value)
    for one in found.unbalanced:
        render.note(f"warning: {one.task}/{one.role}: [{one.code}] {one.text}")
    for each in found.left_out[:_SHOWN_LEFT_OUT]:
        render.note(f"left out: {each.where}: {each.reason}")
    if len(found.left_out) > _SHOWN_LEFT_OUT:
        render.note(f"left out: {len(found.left_out) - _SHOWN_LEFT_OUT} more")

"""`throughput`: what loops get done."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
from libra_plan.errors import InputError
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from libra_plan.planner.telemetry.readers import ReaderFacts
    from libra_plan.planner.telemetry.throughput import Ledger, Rate
    from libra_plan.planner.telemetry.work_windows import Rejected, WorkWindow

__all__ = ["GpusOfLog", "Recordings", "SamplesOfLog", "SourceFormat", "TaskOfLog", "register", "windows_of"]

_SHOWN_REJECTED = 5


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
    "Say what every role gets done: tokens, samples, steps a second, waiting time, queues and staleness.\n\n"
    "Reads what libra_plan.counter writes, or the metrics of verl, NeMo-RL, slime and vLLM; checks that "
    "tokens are what batch and length imply.\n\n"
    "Example: libra-plan throughput run/telemetry --format json"
)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(help=_THROUGHPUT)(throughput)


def windows_of(
    paths: list[Path], source: SourceFormat, facts: ReaderFacts, rejected: list[Rejected]
) -> Iterator[WorkWindow]:
    """Read windows of our counters, or of somebody's metrics."""
    if source is SourceFormat.COUNTER:
        from libra_plan.planner.telemetry.work_windows import find_recordings, read_windows

        yield from read_windows(find_recordings(paths), rejected)
        return
    from libra_plan.planner.telemetry.readers import find_reader
    from libra_plan.planner.telemetry.work_windows import believable
    from libra_plan.profiles.importers.records import Source, read_source

    reader = find_reader(source.value)
    sources = [read_source(path, reader.endings) for path in paths]
    texts = tuple(text for each in sources for text in each.texts)  # one run: steps go on over files
    found = reader.read(Source(sources[0].path, texts, sources[0].sha256), facts, rejected)
    yield from believable(found, rejected)


def throughput(
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
    from libra_plan.planner.telemetry.balance import imbalances
    from libra_plan.planner.telemetry.readers import ReaderFacts
    from libra_plan.planner.telemetry.throughput import Ledger
    from libra_plan.planner.telemetry.work_metrics import work_metrics

    rejected: list[Rejected] = []
    ledger = Ledger(every_s)
    windows = windows_of(recordings, reader, ReaderFacts(task, gpus, samples), rejected)
    unbalanced = list(imbalances(_through(windows, ledger)))
    totals = list(ledger.totals())
    if not totals:
        raise InputError(
            "no window could be read",
            got=counted(len(rejected), "line was", "lines were") + " left out" if rejected else "no line",
            way_out=f"first: {rejected[0].where}: {rejected[0].reason}" if rejected else "record for longer",
        )
    if form is RateForm.PROMETHEUS:
        render.print_text(work_metrics(list(ledger.rates())).rstrip("\n"))
    elif form is RateForm.TABLE:
        _print_rates(totals)
    else:
        data = {"totals": totals, "stretches": list(ledger.rates()), "unbalanced": unbalanced}
        render.print_data(render.as_data({**data, "left_out": rejected}), form.value)
    for one in unbalanced:
        render.note(f"warning: {one.task}/{one.role}: [{one.code}] {one.text}")
    for each in rejected[:_SHOWN_REJECTED]:
        render.note(f"left out: {each.where}: {each.reason}")
    if len(rejected) > _SHOWN_REJECTED:
        render.note(f"left out: {len(rejected) - _SHOWN_REJECTED} more")


def _through(windows: Iterator[WorkWindow], ledger: Ledger) -> Iterator[WorkWindow]:
    for window in windows:
        ledger.add(window)
        yield window


def _print_rates(rates: list[Rate]) -> None:
    columns = ["task", "role", "ranks", "hours", "tokens /s", "samples /s", "steps /s", "waiting", "stale"]
    rows = [
        [
            rate.task,
            rate.role,
            str(rate.ranks),
            f"{rate.covered_s / 3600:.3g}",
            _number(rate.tokens_per_s),
            _number(rate.samples_per_s),
            _number(rate.steps_per_s),
            "?" if rate.idle is None else f"{rate.idle:.1%}",
            _number(rate.staleness),
            ", ".join(f"{queue.name} {queue.last:g} (≤ {queue.longest:g})" for queue in rate.queues),
        ]
        for rate in rates
    ]
    render.print_table([*columns, "queues"], rows, right=range(2, 9))
    twice = [f"{rate.task}/{rate.role} {rate.duplicates:,}" for rate in rates if rate.duplicates]
    if twice:
        render.note(f"windows of ranks that hold what another one counts, counted once: {', '.join(twice)}")


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"

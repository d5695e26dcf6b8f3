"""`throughput` and `batch`: what loops get done, and which batch fits."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.plan_verbs import Form, FormOption
from libra_plan.errors import InputError
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from libra_plan.models.batch_control import BatchState
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
_BATCH = (
    "Say which micro-batch, or how many sequences at once, fits in memory, and the next step towards it.\n\n"
    "From a train profile: micro-batch and accumulation, the rank's batch unchanged. From a decode profile: "
    "concurrent sequences.\n\n"
    "Example: libra-plan batch profiles/h200-qwen2.5-1.5b-train --lengths lengths.txt --limit-mib 60000 "
    "--samples-per-rank 32 --current 2"
)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(help=_THROUGHPUT)(throughput)
    app.command(help=_BATCH)(batch)


def windows_of(
    paths: list[Path], source: SourceFormat, facts: ReaderFacts, rejected: list[Rejected]
) -> Iterator[WorkWindow]:
    """Read windows of our counters, or of somebody's metrics."""
    if source is SourceFormat.COUNTER:
        from libra_plan.planner.telemetry.work_windows import find_recordings, read_windows

        yield from read_windows(find_recordings(paths), rejected)
        return
    from libra_plan.planner.telemetry.readers import find_reader
    from libra_plan.profiles.importers.records import read_source

    reader = find_reader(source.value)
    for path in paths:
        yield from reader.read(read_source(path, reader.endings), facts, rejected)


def throughput(
    recordings: Recordings,
    reader: ReaderOption = SourceFormat.COUNTER,
    task: TaskOfLog = "",
    gpus: GpusOfLog = None,
    samples: SamplesOfLog = None,
    every_s: Annotated[
        float, typer.Option(help="Length of a stretch, seconds; JSON and YAML list them.", min=1.0)
    ] = 60.0,
    form: Annotated[RateForm, typer.Option("--format", help="How to write the result.")] = RateForm.TABLE,
) -> None:
    """Read, add up and print."""
    from libra_plan.planner.telemetry.balance import balance_findings
    from libra_plan.planner.telemetry.readers import ReaderFacts
    from libra_plan.planner.telemetry.throughput import Ledger
    from libra_plan.planner.telemetry.work_metrics import work_metrics

    rejected: list[Rejected] = []
    ledger = Ledger(every_s)
    windows = windows_of(recordings, reader, ReaderFacts(task, gpus, samples), rejected)
    findings = list(balance_findings(_through(windows, ledger)))
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
        data = {"totals": totals, "stretches": list(ledger.rates()), "findings": findings}
        render.print_data(render.as_data({**data, "left_out": rejected}), form.value)
    for finding in findings:
        render.note(f"warning: {finding.task}/{finding.role}: [{finding.code}] {finding.text}")
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


def batch(
    profile: Annotated[Path, typer.Argument(help="Folder of a train or decode profile.")],
    lengths: Annotated[
        Path, typer.Option(help="Lengths of sequences, one a line: prompt and response (decode: at the end).")
    ],
    limit_mib: Annotated[float, typer.Option(help="Memory there is on a GPU, MiB.", min=1.0)],
    current: Annotated[int, typer.Option(help="Micro-batch, or sequences at once, now.", min=1)] = 1,
    samples_per_rank: Annotated[
        int | None, typer.Option(help="Training: global batch ÷ data-parallel ranks.", min=1)
    ] = None,
    most: Annotated[
        int, typer.Option(help="Decoding: sequences at once that are worth having.", min=1)
    ] = 1024,
    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks.", min=1)] = 1,
    dp: Annotated[int, typer.Option(help="Data-parallel ranks.", min=1)] = 1,
    form: FormOption = Form.TABLE,
) -> None:
    """Bound the memory of every size, and print which fit."""
    from libra_plan.models.batch_control import recommend_batch, rollout_batch, training_batch
    from libra_plan.models.batch_memory import profile_need
    from libra_plan.models.fit_cache import cache_folder, cached_fit
    from libra_plan.models.parallelism import Layout
    from libra_plan.profiles.catalog import load_profile
    from libra_plan.profiles.traces import read_trace

    loaded = load_profile(profile)
    if loaded.file.phase == "train":
        if samples_per_rank is None:
            raise InputError("a training rank's batch must be known", got="no --samples-per-rank")
        state = training_batch(samples_per_rank, current)
    elif loaded.file.phase == "decode":
        state = rollout_batch(current, most)
    else:
        raise InputError(
            "a batch is recommended from a train or decode profile", got=f"phase {loaded.file.phase}"
        )
    fitted = cached_fit(loaded.file, loaded.points, folder=cache_folder(os.environ))
    need = profile_need(fitted, read_trace(lengths), Layout(tp), dp)
    advice = recommend_batch(state, need_mib=need, limit_mib=limit_mib)
    sizes = [_size(size, need(size), limit_mib, state) for size in state.sizes]
    roomy = [size for size, row in zip(state.sizes, sizes, strict=True) if row["fits_with_margin"]]
    largest = max(roomy, default=None)
    if form is not Form.TABLE:
        step = {"size": advice.size, "accumulation": advice.accumulation, "changed": advice.changed}
        data = {"next": step | {"reason": advice.reason}, "largest": largest, "sizes": sizes}
        render.print_data(data, form.value)
        return
    _print_sizes(sizes, current)
    now = "go to" if advice.changed else "stay at"
    spare = f"with {state.margin:.0%} to spare: {largest or 'none'}"
    render.print_text(f"\n{now} {advice.size} ({advice.reason}); {spare}")


def _size(size: int, needed_mib: float, limit_mib: float, state: BatchState) -> dict[str, object]:
    """Describe one size; memory is None where the profile does not reach."""
    samples = state.samples_per_rank
    return {
        "size": size,
        "accumulation": None if samples is None else samples // size,
        "needed_mib": needed_mib if math.isfinite(needed_mib) else None,
        "fits": needed_mib <= limit_mib,
        "fits_with_margin": needed_mib * (1 + state.margin) <= limit_mib,
    }


def _print_sizes(sizes: list[dict[str, object]], current: int) -> None:
    rows = [
        [
            f"{row['size']}{' ←' if row['size'] == current else ''}",
            "" if row["accumulation"] is None else str(row["accumulation"]),
            "outside the profile" if row["needed_mib"] is None else f"{row['needed_mib']:.0f}",
            "yes" if row["fits_with_margin"] else "barely" if row["fits"] else "no",
        ]
        for row in sizes
    ]
    render.print_table(["size", "accumulation", "needs up to MiB", "fits"], rows, right=(1, 2))

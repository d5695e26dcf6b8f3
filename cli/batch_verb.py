"""`batch`: which micro-batch, or how many sequences at once, memory allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.errors import printable
from libra_plan.cli.flags import Form, FormOption
from libra_plan.cli.program import app
from libra_plan.errors import InputError
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from libra_plan.models.batch import BatchAdvice, BatchState
    from libra_plan.models.parallelism import Layout
    from libra_plan.profiles.catalog import LoadedProfile

_BATCH = (
    "Say which micro-batch, or how many sequences at once, fits in memory, and the next step towards it.\n\n"
    "From a train profile: micro-batch and accumulation, the rank's batch unchanged. From a decode or "
    "serve profile: concurrent sequences. With --recording it goes through what `monitor --out` recorded, "
    "window by window, and says where it arrives.\n\n"
    "Example: libra-plan batch profiles/h200-qwen2.5-1.5b-train --lengths lengths.txt --limit-mib 60000 "
    "--samples-per-rank 32 --current 2"
)


@app.command("batch", help=_BATCH)
def _batch(
    profile: Annotated[
        Path, typer.Argument(help="Train, decode or serve profile: its folder, or a known name.")
    ],
    lengths: Annotated[
        Path, typer.Option(help="Lengths of sequences, one a line: prompt and response (decode: at the end).")
    ],
    limit_mib: Annotated[
        float | None, typer.Option(help="Memory the role can have on a GPU, MiB.", min=1.0)
    ] = None,
    recording: Annotated[
        Path | None, typer.Option(help="Recording of its GPUs by `monitor --out`, instead of --limit-mib.")
    ] = None,
    window: Annotated[float, typer.Option(help="Window of the recording, seconds.", min=1.0)] = 60.0,
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
    from libra_plan.models.batch import recommend_batch
    from libra_plan.models.parallelism import Layout
    from libra_plan.profiles.catalog import find_profile, load_profile
    from libra_plan.profiles.traces import read_trace

    loaded = load_profile(find_profile(profile))
    state = _begin(loaded, samples_per_rank, current, most)
    limits = _limits(limit_mib, recording, window)
    need = _need(loaded, read_trace(lengths), Layout(tp), dp)
    changes = 0
    for limit in limits:
        advice = recommend_batch(state, need_mib=need, limit_mib=limit)
        changes, state = changes + advice.changed, advice.state
    sizes = [_size(size, need(size), limits[-1], state) for size in state.sizes]
    roomy = [size for size, row in zip(state.sizes, sizes, strict=True) if row["fits_with_margin"]]
    largest = max(roomy, default=None)
    if form is Form.TABLE:
        _print_sizes(sizes, current)
        over = "" if recording is None else f" after {counted(len(limits), 'window')}"
        _print_advice(advice, current, over, largest)
    else:
        step = _next_step(advice, changes, limits)
        render.print_data({"next": step, "largest": largest, "sizes": sizes}, form.value)


def _print_advice(advice: BatchAdvice, current: int, over: str, largest: int | None) -> None:
    now = "stay at" if advice.size == current else "go to"
    spare = f"with {advice.state.margin:.0%} to spare of {advice.limit_mib:.0f} MiB: {largest or 'none'}"
    render.print_text(f"\n{now} {advice.size}{over} ({advice.reason}); {spare}")


def _next_step(advice: BatchAdvice, changes: int, limits: Sequence[float]) -> dict[str, object]:
    return {
        "size": advice.size,
        "accumulation": advice.accumulation,
        "changed": changes > 0,
        "windows": len(limits),
        "changes": changes,
        "limit_mib": limits[-1],
        "reason": advice.reason,
    }


def _begin(loaded: LoadedProfile, samples_per_rank: int | None, current: int, most: int) -> BatchState:
    from libra_plan.models.batch import rollout_batch, training_batch

    phase = loaded.file.phase
    if phase == "train" and samples_per_rank is None:
        raise InputError(
            "a training rank's batch must be known",
            got="no --samples-per-rank",
            way_out="add it: the optimizer's batch divided by the data-parallel ranks",
        )
    if phase == "train" and samples_per_rank is not None:
        return training_batch(samples_per_rank, current)
    if phase in ("decode", "serve"):
        return rollout_batch(current, most)
    raise InputError("a batch is recommended from a train, decode or serve profile", got=f"phase {phase}")


def _need(
    loaded: LoadedProfile, lengths_tokens: Sequence[int], layout: Layout, dp: int
) -> Callable[[int], float]:
    """Bound the memory of each size: as measured, or from the engine's own figures where only times were."""
    from libra_plan.models.batch import engine_need, profile_need
    from libra_plan.models.fits import cached_fit

    if loaded.file.phase == "serve":
        return engine_need(loaded.file, lengths_tokens, layout)
    fitted = cached_fit(loaded)
    return profile_need(fitted, lengths_tokens, layout, dp)


def _limits(limit_mib: float | None, recording: Path | None, window_s: float) -> Sequence[float]:
    """Give the memory there is: as stated, or of every window of a recording."""
    if (limit_mib is None) == (recording is None):
        raise InputError("how much memory there is must be known", allowed="one of --limit-mib, --recording")
    if recording is None:
        return [limit_mib or 0.0]
    from libra_plan.planner.telemetry.recording import Playback
    from libra_plan.planner.telemetry.summary import main_process_memory_by_window

    found = list(main_process_memory_by_window(Playback(recording), window_s))
    if not found:
        raise InputError(
            "the recording does not tell whose memory is whose",
            got=printable(recording),
            allowed="samples with total and used memory, and the processes that hold it",
            way_out="record outside of the container, or state --limit-mib",
        )
    return found


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

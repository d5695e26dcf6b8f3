"""`batch`: which micro-batch, or how many sequences at once, memory allows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import libra_plan as lp
from libra_plan.cli import render
from libra_plan.cli.flags import Form, FormOption
from libra_plan.cli.program import app

_BATCH = (
    "Find which micro-batch, or how many sequences at once, fits in memory, and the next step towards it.\n\n"
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
    from libra_plan.planner.report.batch_text import batch_data, batch_text

    found = lp.batch_sizes(
        profile,
        lengths,
        limit_mib=limit_mib,
        recording=recording,
        window_s=window,
        current=current,
        samples_per_rank=samples_per_rank,
        most=most,
        tp=tp,
        dp=dp,
    )
    if form is Form.TABLE:
        render.print_text(batch_text(found, current, recorded=recording is not None, page=render.page()))
    else:
        render.print_data(batch_data(found), form.value)

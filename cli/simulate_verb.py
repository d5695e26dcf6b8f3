"""`simulate`: what policies would do with a workload, in simulated worlds; and worlds from recordings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

import libra_plan as lp
from libra_plan.cli import render
from libra_plan.cli.errors import Interrupted
from libra_plan.cli.flags import Form, FormOption
from libra_plan.cli.program import app
from libra_plan.cli.throughput_verbs import SamplesOfLog, TaskOfLog
from libra_plan.errors import InputError, writing

_SIMULATE = (
    "Simulate worlds under allocation policies, seed by seed, and compare what gets done.\n\n"
    "A world is a file (copy one of those that come with the package), or the id of one of these. Every "
    "policy meets the same work under a seed; intervals are of the ratios of paired seeds.\n\n"
    "Example: libra-plan simulate identical-64 --policies best-static,ours --seeds 3\n\n"
    "With --fit nothing is run: recordings of your own become a world, on top of the one that is named.\n\n"
    "Example: libra-plan simulate verl-dapo-7b-64 --fit metrics.jsonl --placed 64 --out mine.yaml"
)


class JobBackend(str, Enum):
    """What spreads runs."""

    LOKY = "loky"
    DASK = "dask"
    RAY = "ray"


@app.command("simulate", help=_SIMULATE)
def _simulate(
    worlds: Annotated[list[str], typer.Argument(help="World files, or ids of shipped ones; `all`: those.")],
    policies: Annotated[
        str, typer.Option(help="Policies, with commas; `all`: every one.")
    ] = "equal,best-static,ours,clairvoyant",
    seeds: Annotated[int, typer.Option(help="Seeds 0 to N − 1.", min=1)] = 1,
    over: Annotated[str, typer.Option(help="The policy that others are compared with.")] = "best-static",
    hours: Annotated[float | None, typer.Option(help="Simulate so many hours of each.", min=0.01)] = None,
    jobs: Annotated[int, typer.Option(help="Runs at a time.", min=1, max=4096)] = 1,
    backend: Annotated[
        JobBackend, typer.Option(help="What spreads runs: joblib's backend.")
    ] = JobBackend.LOKY,
    jsonl: Annotated[Path | None, typer.Option(help="Folder for a JSONL trace of every run.")] = None,
    chrome: Annotated[Path | None, typer.Option(help="Folder for a Chrome trace of every run.")] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(help="Folder for pictures (SVG) of the first seed, and of gains."),
    ] = None,
    fit: Annotated[
        list[Path] | None, typer.Option(help="Recording to fit the world to; may be given again.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="With --fit: file to write the world to.")] = None,
    placed: Annotated[
        str | None,
        typer.Option(help="With --fit: GPUs of the run (64), or replicas × GPUs: rollout=16x2,train=4x8."),
    ] = None,
    profile: Annotated[
        list[str] | None, typer.Option(help="With --fit: profile whose costs stand in for the base's.")
    ] = None,
    task: TaskOfLog = "",
    samples: SamplesOfLog = None,
    form: FormOption = Form.TABLE,
) -> None:
    if fit:
        fitted = lp.fit_world(
            worlds, fit, placed=placed, profiles=profile or (), task=task, samples=samples, hours=hours,
            out=out, notes=render.note,
        )  # fmt: skip
        _print_fitted(fitted, form, written=out is not None)
        return
    for name, given in (("--out", out), ("--placed", placed), ("--profile", profile)):
        if given is not None:
            raise InputError(f"{name} goes with --fit", way_out="name the recordings with --fit")
    if pictures is not None:
        with writing(pictures):  # refused before anything runs
            pictures.mkdir(parents=True, exist_ok=True)
    with _bar() as progress:
        found = lp.simulate(
            worlds, policies, seeds=seeds, over=over, hours=hours, jobs=jobs, backend=backend.value,
            jsonl=jsonl, chrome=chrome, keep_records=pictures is not None, progress=progress,
        )  # fmt: skip
    if found.runs:
        _print_found(found, form)
    if pictures is not None:
        from libra_plan.planner.report.run_pictures import draw_runs

        draw_runs(found, pictures)
        render.note(f"wrote pictures to {pictures}")
    if len(found.runs) < found.asked:
        raise Interrupted(f"after {len(found.runs)} of {found.asked} runs")


def _print_found(found: lp.Simulation, form: Form) -> None:
    if form is not Form.TABLE:
        render.print_data(found.to_dict(), form.value)
        return
    from libra_plan.planner.report.simulation_text import simulation_text

    render.print_text(simulation_text(found, render.page()))


def _print_fitted(fitted: lp.FittedWorld, form: Form, *, written: bool) -> None:
    if form is not Form.TABLE:
        render.print_data(fitted.to_dict(), form.value)
    elif not written:
        render.print_text(fitted.yaml().rstrip("\n"))
    else:
        from libra_plan.planner.report.simulation_text import fitted_text

        render.print_text(fitted_text(fitted, render.page()))


@contextmanager
def _bar() -> Iterator[Callable[[float], None] | None]:
    """Show a bar on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("simulating", total=1.0)
        yield lambda share: shown.update(task, completed=share)

"""`simulate`: what policies would do with a workload, in simulated worlds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.errors import Interrupted, writing
from libra_plan.cli.flags import Form, FormOption
from libra_plan.cli.throughput_verbs import SamplesOfLog, TaskOfLog
from libra_plan.errors import InputError

if TYPE_CHECKING:
    from libra_plan.planner.simulate.record import Record
    from libra_plan.planner.simulate.report import Figures
    from libra_plan.planner.simulate.sweep import Case
    from libra_plan.planner.simulate.world import World

__all__ = ["register"]

_SIMULATE = (
    "Simulate worlds under allocation policies, seed by seed, and compare what gets done.\n\n"
    "A world is a file (copy one of those that come with the package), or the id of one of these. Every "
    "policy meets the same work under a seed; intervals are of the ratios of paired seeds.\n\n"
    "Example: libra-plan simulate identical-64 --policies best-static,ours --seeds 3\n\n"
    "With --fit nothing is run: recordings of your own become a world, on top of the one that is named.\n\n"
    "Example: libra-plan simulate verl-dapo-7b-64 --fit metrics.jsonl --placed 64 --out mine.yaml"
)


class Backend(str, Enum):
    """What spreads runs."""

    LOKY = "loky"
    DASK = "dask"
    RAY = "ray"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(help=_SIMULATE)(simulate)


def simulate(
    worlds: Annotated[list[str], typer.Argument(help="World files, or ids of shipped ones; `all`: those.")],
    policies: Annotated[
        str, typer.Option(help="Policies, with commas; `all`: every one.")
    ] = "equal,best-static,ours,clairvoyant",
    seeds: Annotated[int, typer.Option(help="Seeds 0 to N − 1.", min=1)] = 1,
    over: Annotated[str, typer.Option(help="The policy that others are compared with.")] = "best-static",
    hours: Annotated[float | None, typer.Option(help="Simulate so many hours of each.", min=0.01)] = None,
    jobs: Annotated[int, typer.Option(help="Runs at a time.", min=1, max=4096)] = 1,
    backend: Annotated[Backend, typer.Option(help="What spreads runs: joblib's backend.")] = Backend.LOKY,
    jsonl: Annotated[Path | None, typer.Option(help="Folder for a JSONL trace of every run.")] = None,
    chrome: Annotated[Path | None, typer.Option(help="Folder for a Chrome trace of every run.")] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(
            help="Folder for pictures (SVG and PNG) of the first seed, and of gains; needs matplotlib."
        ),
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
    """Run, compare and print; or fit."""
    if fit:
        from libra_plan.cli.simulate_fit import fit_recordings

        fit_recordings(_worlds(worlds, hours), fit, out, placed, task, samples, profile or [], form)
        return
    for name, given in (("--out", out), ("--placed", placed), ("--profile", profile)):
        if given is not None:
            raise InputError(f"{name} goes with --fit", way_out="name the recordings with --fit")
    _run(worlds, policies, seeds, over, hours, jobs, backend, jsonl, chrome, pictures, form)


def _run(
    worlds: list[str],
    policies: str,
    seeds: int,
    over: str,
    hours: float | None,
    jobs: int,
    backend: Backend,
    jsonl: Path | None,
    chrome: Path | None,
    pictures: Path | None,
    form: Form,
) -> None:
    from libra_plan.planner.simulate.policies import POLICIES, make_policy
    from libra_plan.planner.simulate.sweep import Case

    names = list(POLICIES) if policies == "all" else [name.strip() for name in policies.split(",")]
    for name in (*names, over):
        make_policy(name)  # refuses a wrong name before anything runs
    if pictures is not None:
        from libra_plan.planner.simulate.pictures import need_matplotlib

        need_matplotlib()
    for folder in (jsonl, chrome, pictures):
        if folder is not None:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
    traced = jsonl is not None or chrome is not None
    cases = [
        Case(world, name, seed, keep_stages=traced or (pictures is not None and seed == 0))
        for world in _worlds(worlds, hours)
        for seed in range(seeds)
        for name in names
    ]
    found, shown = [], []
    interrupted = False
    try:
        for figures, record in _shown_runs(cases, jobs, backend):
            found.append(figures)
            _trace(record, jsonl, chrome)
            if pictures is not None and record.seed == 0:
                shown.append(record)
    except KeyboardInterrupt:
        interrupted = True
    if found:
        _tell(found, [name for name in names if name != over], over, form, pictures)
    if pictures is not None:
        _draw(shown, {case.world.id: case.world.look_s for case in cases}, pictures)
    if interrupted:
        raise Interrupted(f"after {len(found)} of {len(cases)} runs")


def _shown_runs(cases: Sequence[Case], jobs: int, backend: Backend) -> Iterator[tuple[Figures, Record]]:
    """Make the runs, with a bar."""
    from libra_plan.planner.simulate.sweep import sweep

    with _bar() as progress:
        yield from sweep(cases, jobs, backend.value, progress)


def _tell(
    found: Sequence[Figures], names: Sequence[str], over: str, form: Form, pictures: Path | None
) -> None:
    """Write what was found."""
    from libra_plan.cli.simulate_tables import print_figures, print_ratios
    from libra_plan.planner.simulate.report import paired, summaries

    summed = summaries(found, over)
    ratios = [each for name in names for each in paired(found, name, over)]
    if form is Form.TABLE:
        print_figures(summed)
        print_ratios(ratios)
    else:
        data = {"runs": found, "ratios": ratios, "summaries": summed}
        render.print_data(render.as_data(data), form.value)
    if pictures is not None and ratios:
        from libra_plan.planner.simulate.pictures import draw_gain

        worlds = list(dict.fromkeys(each.world for each in ratios))
        with writing(pictures):
            draw_gain(sorted(ratios, key=lambda each: worlds.index(each.world)), pictures / "gain")


def _draw(records: Sequence[Record], look_s: Mapping[str, float], folder: Path) -> None:
    """Draw the runs of each world, and say where."""
    from libra_plan.planner.simulate.pictures import draw_allocation, draw_utilization

    for world in dict.fromkeys(record.world for record in records):
        own = [record for record in records if record.world == world]
        with writing(folder):
            draw_allocation(own, folder)
            draw_utilization(own, look_s[world], folder)
    render.note(f"wrote pictures to {folder}")


def _worlds(given: Sequence[str], hours: float | None) -> list[World]:
    import msgspec

    from libra_plan.planner.simulate.world import read_world, shipped_worlds

    shipped = shipped_worlds()
    found = []
    for text in list(shipped) if list(given) == ["all"] else given:
        path = shipped.get(text, Path(text))
        if text not in shipped and not path.exists():
            raise InputError("there is no such world", got=text, allowed=", ".join(shipped) + ", or a file")
        world = read_world(path)
        found.append(world if hours is None else msgspec.structs.replace(world, hours=hours))
    return found


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


def _trace(record: Record, jsonl: Path | None, chrome: Path | None) -> None:
    from libra_plan.planner.simulate.traces import chrome_trace, json_lines

    name = f"{record.world}-{record.policy}-{record.seed}"
    if jsonl is not None:
        with writing(jsonl):
            (jsonl / f"{name}.jsonl").write_bytes(b"\n".join(json_lines(record)) + b"\n")
    if chrome is not None:
        with writing(chrome):
            (chrome / f"{name}.json").write_bytes(chrome_trace(record))

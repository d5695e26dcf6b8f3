"""`simulate`: what policies would do with a workload, in simulated worlds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.plan_verbs import Form, FormOption
from libra_plan.errors import InputError

if TYPE_CHECKING:
    from libra_plan.planner.simulate.record import Record
    from libra_plan.planner.simulate.report import Figures, Interval
    from libra_plan.planner.simulate.world import World

__all__ = ["register"]

_SIMULATE = (
    "Simulate worlds under allocation policies, seed by seed, and compare what gets done.\n\n"
    "A world is a file (copy one of those that come with the package), or the id of one of these. Every "
    "policy meets the same work under a seed; intervals are of the ratios of paired seeds.\n\n"
    "Example: libra-plan simulate identical-64 --policies best-static,ours --seeds 3"
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
    jobs: Annotated[int, typer.Option(help="Runs at a time.", min=1)] = 1,
    backend: Annotated[Backend, typer.Option(help="What spreads runs: joblib's backend.")] = Backend.LOKY,
    jsonl: Annotated[Path | None, typer.Option(help="Folder for a JSONL trace of every run.")] = None,
    chrome: Annotated[Path | None, typer.Option(help="Folder for a Chrome trace of every run.")] = None,
    form: FormOption = Form.TABLE,
) -> None:
    """Run, compare and print."""
    from libra_plan.planner.simulate.policies import POLICIES, make_policy
    from libra_plan.planner.simulate.report import paired
    from libra_plan.planner.simulate.sweep import Case, sweep

    names = list(POLICIES) if policies == "all" else [name.strip() for name in policies.split(",")]
    for name in (*names, over):
        make_policy(name)  # refuses a wrong name before anything runs
    for folder in (jsonl, chrome):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    cases = [
        Case(world, name, seed, keep_stages=jsonl is not None or chrome is not None)
        for world in _worlds(worlds, hours)
        for seed in range(seeds)
        for name in names
    ]
    found: list[Figures] = []
    with _bar() as progress:
        for figures, record in sweep(cases, jobs, backend.value, progress):
            found.append(figures)
            _trace(record, jsonl, chrome)
    ratios = [each for name in names if name != over for each in paired(found, name, over)]
    if form is Form.TABLE:
        _print(found, ratios)
    else:
        render.print_data(render.as_data({"runs": found, "ratios": ratios}), form.value)


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
        (jsonl / f"{name}.jsonl").write_bytes(b"\n".join(json_lines(record)) + b"\n")
    if chrome is not None:
        (chrome / f"{name}.json").write_bytes(chrome_trace(record))


def _print(found: Sequence[Figures], ratios: Sequence[Interval]) -> None:
    columns = ["world", "policy", "× fair share", "worst task", "tokens /s", "samples /s", "idle", "bubbles",
               "moves /h", "lost GPU h", "JCT mean h", "p99 h", "look p50 s", "p99 s"]  # fmt: skip
    rows = []
    for world, policy in dict.fromkeys((each.world, each.policy) for each in found):
        own = [each for each in found if (each.world, each.policy) == (world, policy)]
        rows.append([world, policy, *(_mean(own, key) for key in _KEYS)])
    render.print_table(columns, rows, right=range(2, len(columns)))
    if not ratios:
        return
    render.print_line("")
    lines = [
        [each.world, each.policy, each.over, f"{each.mean:.3f}", _span(each), str(each.seeds)]
        for each in ratios
    ]
    render.print_table(["world", "policy", "over", "ratio", "95 % interval", "seeds"], lines, right=(3, 4, 5))


_KEYS = {
    "weighted": ("{:.3f}", 1.0),
    "fairness": ("{:.3f}", 1.0),
    "tokens_per_s": ("{:,.0f}", 1.0),
    "samples_per_s": ("{:.3g}", 1.0),
    "idle": ("{:.1%}", 1.0),
    "bubbles": ("{:.1%}", 1.0),
    "moves_per_hour": ("{:.2f}", 1.0),
    "lost_gpu_hours": ("{:.1f}", 1.0),
    "jct_mean_s": ("{:.2f}", 1 / 3600),
    "jct_p99_s": ("{:.2f}", 1 / 3600),
    "decide_p50_s": ("{:.3f}", 1.0),
    "decide_p99_s": ("{:.3f}", 1.0),
}


def _mean(found: Sequence[Figures], key: str) -> str:
    """Give the mean over seeds in the form of its column."""
    values = [value for each in found if (value := getattr(each, key)) is not None]
    text, unit = _KEYS[key]
    return text.format(sum(values) / len(values) * unit) if values else "–"


def _span(each: Interval) -> str:
    return "–" if each.low is None else f"{each.low:.3f} – {each.high:.3f}"

"""Print published step times against simulated ones and the closed forms, or write them to the docs.

    python benchmarks/public_steps.py            # the tables, on stdout
    python benchmarks/public_steps.py --write    # and docs/measurements/public_steps.md

`benchmarks/public/rows.yaml` has the published rows with their source, and which stages of which row costs
are scaled to; all others are held out. `benchmarks/public/*.yaml` are the worlds.
Simulated: means of three seeds and more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import yaml
from simulated_steps import Case, case_of, closed_s, engine_s

from libra_plan.planner.simulate.world import Costs, World, WorldTask, read_world

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "benchmarks" / "public" / "rows.yaml"
PAGE = ROOT / "docs" / "measurements" / "public_steps.md"
COLUMNS = ("row", "stage", "published s", "simulated s", "error", "closed form s", "error", "")
_DECODE = ("fixed_s", "per_sequence_s", "per_token_s", "prefill_s_per_token")
_TRAIN = ("fixed_s", "per_token_s", "per_square_s", "all_reduce_s")
_TRIES = 6


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A published row: where roles ran (replicas x GPUs) and what it took."""

    name: str
    mode: str
    placed: dict[str, str]
    step_s: float
    stages: dict[str, float] = {}
    staleness: int = 0
    drop: tuple[str, ...] = ()
    mean_tokens: float | None = None
    fit: tuple[str, ...] = ()


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one model and framework."""

    world: str
    title: str
    source: str
    rows: tuple[Row, ...]
    note: str = ""


def families() -> list[Family]:
    """Read the published rows."""
    data = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    return msgspec.convert(data["families"], list[Family])


def scaled(costs: Costs, factors: Mapping[str, float]) -> Costs:
    """Multiply the costs of roles."""
    decode = tuple(_times(each, _DECODE, factors.get("rollout", 1.0)) for each in costs.decode)
    train = None if costs.train is None else _times(costs.train, _TRAIN, factors.get("train", 1.0))
    scoring = tuple(_times(each, ("per_token_s",), factors.get(each.id, 1.0)) for each in costs.scoring)
    return msgspec.structs.replace(costs, decode=decode, train=train, scoring=scoring)


def _times(struct: Any, names: tuple[str, ...], factor: float) -> Any:
    return msgspec.structs.replace(struct, **{name: getattr(struct, name) * factor for name in names})


def in_mode(task: WorldTask, row: Row) -> WorldTask:
    """Return the task as it runs in a row; apart, the trainer scores what is not dropped."""
    costs = task.costs
    if row.drop:
        kept = tuple(each for each in costs.scoring if each.id not in row.drop)
        costs = msgspec.structs.replace(costs, scoring=kept)
    if row.mode == "colocated":
        return msgspec.structs.replace(task, costs=costs, arrangements=("colocated",))
    train = costs.train
    assert train is not None
    more = sum(each.per_token_s * each.gpus for each in costs.scoring) / train.gpus
    train = msgspec.structs.replace(train, per_token_s=train.per_token_s + more)
    costs = msgspec.structs.replace(costs, scoring=(), train=train)
    return msgspec.structs.replace(
        task,
        costs=costs,
        arrangements=("separate",),
        coupling="async",
        staleness=row.staleness,
        rollouts="batches" if row.mode == "one-step" else "stream",
    )


def case_in(world: World, row: Row, factors: Mapping[str, float]) -> Case:
    """Return the case of a row with scaled costs."""
    task = world.tasks[0]
    task = in_mode(msgspec.structs.replace(task, costs=scaled(task.costs, factors)), row)
    sizes = {role: _sizes(text) for role, text in row.placed.items()}
    mean = row.mean_tokens or task.responses.first_mean_tokens
    return case_of(world, task, sizes, mean, shared=row.mode == "colocated")


def _sizes(text: str) -> list[int]:
    replicas, gpus = map(int, text.split("x"))
    return [gpus] * replicas


def fit_row(world: World, row: Row, factors: dict[str, float]) -> None:
    """Scale costs to a row's published stages, or all of them alike to its step."""
    for _ in range(_TRIES):
        found = engine_s(case_in(world, row, factors))
        if row.fit == ("step",):
            off = row.step_s / found["step"]
            for role in world.tasks[0].roles:
                factors[role] = factors.get(role, 1.0) * off
        else:
            ratios = {stage: row.stages[stage] / found[stage] for stage in row.fit}
            off = max(ratios.values(), key=lambda each: abs(each - 1.0))
            for stage, ratio in ratios.items():
                factors[stage] = factors.get(stage, 1.0) * ratio
        if abs(off - 1.0) < 0.002:
            return


def results(family: Family) -> Iterator[tuple[Row, dict[str, float], dict[str, float]]]:
    """Return rows in order, with simulated and closed seconds."""
    world = read_world(ROWS.parent / f"{family.world}.yaml")
    factors: dict[str, float] = {}
    for row in family.rows:
        if row.fit:
            fit_row(world, row, factors)
        case = case_in(world, row, factors)
        yield row, engine_s(case), closed_s(case)


def lines(row: Row, simulated: dict[str, float], closed: dict[str, float]) -> Iterator[tuple[str, ...]]:
    """Return the lines of a row: its step, then the stages that are published."""
    for stage, published in (("step", row.step_s), *row.stages.items()):
        use = "fitted" if stage in row.fit else "held out"
        if stage == "step" and row.fit and "step" not in row.fit:
            use = (
                "stages fitted" if set(row.fit) >= set(row.stages) and row.mode == "colocated" else "held out"
            )
        own = simulated.get(stage)
        yield (
            row.name if stage == "step" else "",
            stage,
            f"{published:.2f}",
            "" if own is None else f"{own:.1f}",
            "" if own is None else f"{own / published - 1.0:+.0%}",
            f"{closed[stage]:.1f}",
            f"{closed[stage] / published - 1.0:+.0%}",
            use,
        )


HEAD = """\
# Published step times against the simulator

Made by `python benchmarks/public_steps.py --write`; nothing is written by hand. Rows and their sources:
[rows.yaml](../../benchmarks/public/rows.yaml), worlds beside it. Where a table has stages, one factor for
each role's costs is fitted to the row marked `fitted`; where it has only steps, one factor for all. All
other figures are held out: costs were not fitted to them. Lengths, batch sizes and tools that tables do not
tell are assumptions of the worlds (`origin`), and part of the error. Simulated: means of three seeds or more.
"""


def page() -> str:
    """Make the page."""
    parts, off, closed_off = [HEAD], list[float](), list[float]()
    for family in families():
        parts.append(f"\n## {family.title}\n\n{family.source}. {family.note}".rstrip() + "\n")
        parts.append("| " + " | ".join(COLUMNS) + " |\n|" + "|".join(["---"] * len(COLUMNS)) + "|\n")
        for row, simulated, closed in results(family):
            for line in lines(row, simulated, closed):
                parts.append("| " + " | ".join(line) + " |\n")
                if line[1] == "step" and line[-1] == "held out":
                    off.append(abs(simulated["step"] / row.step_s - 1.0))
                    closed_off.append(abs(closed["step"] / row.step_s - 1.0))
    parts.insert(1, _summary(off, closed_off))
    return "".join(parts)


def _summary(off: list[float], closed_off: list[float]) -> str:
    said = [
        f"{name} {median(values):.0%} at the median, {max(values):.0%} at most"
        for name, values in (("simulated", off), ("closed form", closed_off))
    ]
    return f"\nSteps held out ({len(off)}): {'; '.join(said)}.\n"


def main() -> None:
    """Print the page, and write it where asked."""
    text = page()
    sys.stdout.write(text)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

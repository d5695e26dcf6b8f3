"""Write docs/evaluation.md and its picture from committed results.

    python benchmarks/evaluation_sweep.py      # makes results, those that are missing: see its --help
    python benchmarks/evaluation.py            # docs/evaluation.md, docs/evaluation.svg

Every figure of the page is read from `benchmarks/evaluation/*.json`; nothing is written by hand. It shows
whatever worlds, policies and seeds there are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
from evaluation_goals import goals, ratios_of, span

from libra_plan.planner.simulate.figures import Figures, PairedRatio, paired

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "evaluation"
OVER = "best-static"
WIDTH, LEFT, ROW = 760, 250, 18
GREY, OURS, OTHERS = "#7b7b80", "#2a9d4a", "#8a8f98"  # to be read on white and on black
HEAD = """\
# Evaluation

Made by `python benchmarks/evaluation.py` from `benchmarks/evaluation/*.json`, which
`python benchmarks/evaluation_sweep.py` wrote; [what is simulated, and what the words mean](simulate.md).
Ratios are of weighted throughput over paired seeds, with Student's 95 % interval of the mean of their
logarithms. The clairvoyant knows true costs and the lengths to come, and moves for nothing; it plans by the
closed forms, so it is a yardstick and no bound. The bound is proven for each world and seed, whatever the
policy; it is not tight. A goal with fewer than three seeds, or of worlds that were not run for all of their
hours, is open, whatever its mean. Decisions are timed in wall seconds of the machine that ran the sweep,
other work on it included.
"""
KEYS = (
    ("× fair share", "weighted", "{:.3f}", 1.0),
    ("of bound", "of_bound", "{:.1%}", 1.0),
    ("worst task", "fairness", "{:.3f}", 1.0),
    ("tokens /s", "tokens_per_s", "{:,.0f}", 1.0),
    ("samples /s", "samples_per_s", "{:,.2f}", 1.0),
    ("JCT mean h", "jct_mean_s", "{:.2f}", 1 / 3600),
    ("p99 h", "jct_p99_s", "{:.2f}", 1 / 3600),
    ("makespan h", "makespan_s", "{:.2f}", 1 / 3600),
    ("idle", "idle", "{:.1%}", 1.0),
    ("bubbles", "bubbles", "{:.1%}", 1.0),
    ("moves /h", "moves_per_hour", "{:.2f}", 1.0),
    ("GPU h lost", "lost_gpu_hours", "{:.1f}", 1.0),
    ("decision p50 s", "decide_p50_s", "{:.3f}", 1.0),
    ("p99 s", "decide_p99_s", "{:.2f}", 1.0),
)


@dataclass(frozen=True)
class Results:
    """All runs, and what closed forms say of tasks (rows of `errors_of`, with their world).

    By world: its GPUs, and the hours that were simulated of those it has.
    """

    runs: tuple[Figures, ...]
    errors: tuple[dict[str, Any], ...]
    gpus: dict[str, int]
    hours: dict[str, tuple[float, float]]

    @property
    def worlds(self) -> tuple[str, ...]:
        """Name the worlds in the order of their files."""
        return tuple(dict.fromkeys(run.world for run in self.runs))

    def of(self, world: str) -> list[Figures]:
        """Return the runs of a world."""
        return [run for run in self.runs if run.world == world]

    @property
    def ratios(self) -> list[PairedRatio]:
        """Return every policy's ratio to the best static plan, world by world."""
        return [
            each
            for world in self.worlds
            for policy in policies(self.of(world))
            if policy != OVER
            for each in paired(self.of(world), policy, OVER)
        ]


def read(folder: Path) -> Results:
    """Read all result files."""
    runs, errors, gpus, hours = [], [], {}, {}
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        runs += msgspec.convert(data["runs"], list[Figures])
        errors += [{"world": data["world"], **row} for row in data["errors"]]
        gpus[data["world"]] = data["gpus"]
        before = hours.get(data["world"], (data["hours"], 0.0))[0]
        hours[data["world"]] = (min(before, data["hours"]), data["whole_hours"])
    return Results(tuple(runs), tuple(errors), gpus, hours)


def policies(runs: Sequence[Figures]) -> list[str]:
    """Name the policies of runs in their order."""
    return list(dict.fromkeys(run.policy for run in runs))


def page(results: Results) -> str:
    """Write the page."""
    lines = [HEAD, *_goals(results), "![Ratios to the best static plan](evaluation.svg)", ""]
    for world in results.worlds:
        lines += _world(world, results)
    return "\n".join([*lines, *(_errors(results.errors) if results.errors else ())])


def _goals(results: Results) -> list[str]:
    errors = [
        (f"{row['world']}: {row['task']}", row["predicted_s"] / row["simulated_s"] - 1.0)
        for row in results.errors
    ]
    lines = ["## Goals", "", "| goal | measured | |", "|---|---|---|"]
    cut = {world for world, (hours, whole) in results.hours.items() if hours < whole}
    found = goals(results.runs, errors, cut)
    lines += [f"| {goal.what} | {goal.measured} | {goal.verdict} |" for goal in found]
    return [*lines, ""]


def _world(world: str, results: Results) -> list[str]:
    runs, (hours, whole) = results.of(world), results.hours[world]
    seeds = sorted({run.seed for run in runs})
    told = f"{hours:g} of its {whole:g} hours" if hours < whole else f"its {whole:g} hours"
    lines = [
        f"## {world}",
        "",
        f"{results.gpus[world]} GPUs, {told}, seeds {', '.join(map(str, seeds))}.",
        "",
    ]
    shown = [key for key in KEYS if any(getattr(run, key[1]) is not None for run in runs)]
    head = ["policy", *(key[0] for key in shown), f"÷ {OVER}"]
    lines += ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for policy in policies(runs):
        own = [run for run in runs if run.policy == policy]
        found = ratios_of(runs, policy, OVER).get(world)
        ratio = "1" if policy == OVER else "–" if found is None else span(found)
        cells = [policy, *(_mean(own, field, form, unit) for _, field, form, unit in shown), ratio]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", *_tasks(runs), *_per_seed(runs, seeds)]


def _mean(runs: Sequence[Figures], field: str, form: str, unit: float) -> str:
    """Return the mean over the seeds that have one."""
    known = [value for run in runs if (value := getattr(run, field)) is not None]
    return form.format(mean(known) * unit) if known else "–"


def _tasks(runs: Sequence[Figures]) -> list[str]:
    """Write the rates of tasks, where there are several."""
    tasks = list(dict.fromkeys(task for run in runs for task in run.task_rates))
    if len(tasks) < 2:
        return []
    lines = ["| × fair share of | " + " | ".join(tasks) + " |", "|---" * (len(tasks) + 1) + "|"]
    for policy in policies(runs):
        own = [run.task_rates for run in runs if run.policy == policy]
        known = [[rates[task] for rates in own if task in rates] for task in tasks]
        cells = [f"{mean(each):.3f}" if each else "–" for each in known]
        lines.append(f"| {policy} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _per_seed(runs: Sequence[Figures], seeds: Sequence[int]) -> list[str]:
    """Write the ratio to the best static plan under every seed."""
    by = {(run.policy, run.seed): run.weighted for run in runs}
    lines = [f"| ÷ {OVER}, seed | " + " | ".join(map(str, seeds)) + " |", "|---" * (len(seeds) + 1) + "|"]
    for policy in policies(runs):
        pairs = [(by.get((policy, seed)), by.get((OVER, seed))) for seed in seeds]
        cells = [f"{a / b:.3f}" if a is not None and b else "–" for a, b in pairs]
        if policy != OVER:
            lines.append(f"| {policy} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _errors(errors: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "## Closed forms against the engine",
        "",
        "Each task alone on its part of the best plan at true costs, lengths steady, nothing failing: the",
        "step time that the planner reckons with, and the simulated one after a quarter of the steps.",
        "",
        "| world | task | coupling | closed form s | simulated s | off by |",
        "|---|---|---|---|---|---|",
    ]
    for row in errors:
        off = row["predicted_s"] / row["simulated_s"] - 1.0
        lines.append(
            f"| {row['world']} | {row['task']} | {row['coupling']} | {row['predicted_s']:.1f} "
            f"| {row['simulated_s']:.1f} | {off:+.1%} |"
        )
    return [*lines, ""]


def picture(ratios: Sequence[PairedRatio]) -> str:
    """Draw a row for each world and policy: the ratio as a dot, its interval as a line, 1 as a rule."""
    ends = [value for each in ratios for value in (each.low, each.high, each.mean) if value]
    low, high = max(min([*ends, 0.9]), 0.2), min(max([*ends, 1.1]), 4.0)

    def x(value: float) -> float:
        return LEFT + (min(max(value, low), high) - low) / (high - low) * (WIDTH - LEFT - 70)

    height = ROW * (len(ratios) + 2)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
        f'font-size="11" fill="{GREY}">',
        _line(x(1.0), x(1.0), 8, height - 24, GREY),
        f'<text x="{x(1.0):.1f}" y="{height - 10}" text-anchor="middle">1 = {OVER}; weighted throughput, '
        "95 % intervals, from "
        f"{low:.2f} to {high:.2f}</text>",
    ]
    for number, each in enumerate(ratios):
        y = ROW * (number + 1)
        colour = OURS if each.policy.startswith("ours") else OTHERS
        out.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{each.world} · {each.policy}</text>')
        if each.low is not None and each.high is not None:
            out.append(_line(x(each.low), x(each.high), y, y, colour))
        out.append(f'<circle cx="{x(each.mean):.1f}" cy="{y}" r="4" fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - 60}" y="{y + 4}">{each.mean:.3f}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _line(x1: float, x2: float, y1: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def main() -> int:
    """Write both files."""
    results = read(RESULTS)
    if not results.runs:
        print(f"no results in {RESULTS}: make some with evaluation_sweep.py", file=sys.stderr)
        return 2
    (ROOT / "docs" / "evaluation.md").write_text(page(results), encoding="utf-8")
    (ROOT / "docs" / "evaluation.svg").write_text(picture(results.ratios), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

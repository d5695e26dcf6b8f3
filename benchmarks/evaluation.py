"""Write docs/evaluation.md and its picture from committed results, or make the results.

    libra-plan simulate WORLDS --policies … --seeds N --format json > benchmarks/evaluation/NAME.json
    python benchmarks/evaluation.py            # docs/evaluation.md, docs/evaluation.svg

Every figure of the page is read from `benchmarks/evaluation/*.json`; nothing is written by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "evaluation"
WIDTH, LEFT, ROW = 760, 250, 18
HEAD = """\
# Evaluation

Made by `python benchmarks/evaluation.py` from `benchmarks/evaluation/*.json`, which `libra-plan simulate`
wrote; [what is simulated, and what the words mean](simulate.md). Ratios are of weighted throughput against
`best-static` over paired seeds, with Student's 95 % interval of the mean of their logarithms. The
clairvoyant is a yardstick, no bound: it plans by the closed forms, which are too fast for async tasks whose
longest trajectories hold steps up, so what is best by them need not be best here.

![Ratios to the best static plan](evaluation.svg)
"""
NAMES = ("policy", "hours", "seeds", "× fair share", "worst task", "tokens /s", "idle", "moves /h")
NAMES += ("GPU h lost", "look p99 s", "÷ best-static")
KEYS = (
    ("weighted", "{:.3f}"),
    ("fairness", "{:.3f}"),
    ("tokens_per_s", "{:,.0f}"),
    ("idle", "{:.1%}"),
    ("moves_per_hour", "{:.2f}"),
    ("lost_gpu_hours", "{:.1f}"),
    ("decide_p99_s", "{:.2f}"),
)


def read(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Read the runs and the paired ratios of all result files."""
    runs: list[dict[str, Any]] = []
    ratios: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        runs += data["runs"]
        ratios += data["ratios"]
    return runs, ratios


def page(runs: list[dict[str, Any]], ratios: list[dict[str, Any]]) -> str:
    """Write the page."""
    lines = [HEAD]
    for world in dict.fromkeys(run["world"] for run in runs):
        own = [run for run in runs if run["world"] == world]
        lines += [f"## {world}", "", "| " + " | ".join(NAMES) + " |", "|---" * len(NAMES) + "|"]
        for policy in dict.fromkeys(run["policy"] for run in own):
            mine = [run for run in own if run["policy"] == policy]
            found = next((r for r in ratios if (r["world"], r["policy"]) == (world, policy)), None)
            cells = [
                policy,
                "{:g}".format(of(mine, "hours")),
                str(len(mine)),
                *(form.format(of(mine, key)) for key, form in KEYS),
                ratio(found),
            ]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def of(runs: list[dict[str, Any]], key: str) -> float:
    """Give the mean over seeds."""
    return mean(run[key] for run in runs)


def ratio(found: dict[str, Any] | None) -> str:
    """Write a ratio with its interval."""
    if found is None:
        return "1"
    span = "" if found["low"] is None else f" ({found['low']:.3f} – {found['high']:.3f})"
    return f"{found['mean']:.3f}{span}"


def picture(ratios: list[dict[str, Any]]) -> str:
    """Draw a row for each world and policy: the ratio as a dot, its interval as a line, 1 as a rule."""
    ends = [value for each in ratios for value in (each["low"], each["high"], each["mean"]) if value]
    low, high = min([*ends, 0.9]), max([*ends, 1.1])
    low, high = max(low, 0.2), min(high, 4.0)

    def x(value: float) -> float:
        return LEFT + (min(max(value, low), high) - low) / (high - low) * (WIDTH - LEFT - 70)

    height = ROW * (len(ratios) + 2)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
        f'font-size="11"><rect width="{WIDTH}" height="{height}" fill="white"/>',
        _line(x(1.0), x(1.0), 8, height - 24, "#999"),
        f'<text x="{x(1.0):.1f}" y="{height - 10}" text-anchor="middle">1 = best-static</text>',
    ]
    for number, each in enumerate(ratios):
        y = ROW * (number + 1)
        colour = "#1a7f37" if each["policy"].startswith("ours") else "#57606a"
        out.append(
            f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{each["world"]} · {each["policy"]}</text>'
        )
        if each["low"] is not None:
            out.append(_line(x(each["low"]), x(each["high"]), y, y, colour))
        out.append(f'<circle cx="{x(each["mean"]):.1f}" cy="{y}" r="4" fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - 60}" y="{y + 4}">{each["mean"]:.3f}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _line(x1: float, x2: float, y1: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def main() -> int:
    """Write both files."""
    runs, ratios = read(RESULTS)
    if not runs:
        print(f"no results in {RESULTS}: make some with libra-plan simulate … --format json", file=sys.stderr)
        return 2
    (ROOT / "docs" / "evaluation.md").write_text(page(runs, ratios), encoding="utf-8")
    (ROOT / "docs" / "evaluation.svg").write_text(picture(ratios), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

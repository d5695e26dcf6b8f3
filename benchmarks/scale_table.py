"""Render the JSON lines of `scale.py` (files or stdin) as a markdown table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

COLUMNS = {
    "case": "case",
    "run": "run",
    "gpus": "GPUs",
    "tasks": "tasks",
    "first_s": "first plan, s",
    "wall_s": "wall, s",
    "cpu_s": "CPU, s",
    "gap_1s": "gap at 1 s",
    "gap_2s": "gap at 2 s",
    "gap_5s": "gap at 5 s",
    "gap": "gap at the end",
    "placed_gap": "gap when placed",
    "moved_gpus": "GPUs moved",
    "peak_mib": "peak, MiB",
}
OF_POLICIES = {
    "policy": "policy",
    "run": "run",
    "gpus": "GPUs",
    "tasks": "tasks",
    "columns": "columns weighed",
    "wall_s": "wall, s",
    "cpu_s": "CPU, s",
    "gap": "gap",
    "widest": "widest pass",
    "queued": "waiting",
    "deadlines_missed": "deadlines missed",
    "violations": "rules broken",
}
"""For lines of `--policy`."""

PERCENT = {"gap_1s", "gap_2s", "gap_5s", "gap", "placed_gap", "widest"}


def main() -> None:
    texts = [Path(name).read_text(encoding="utf-8") for name in sys.argv[1:]] or [sys.stdin.read()]
    lines = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
    for columns, rows in (
        (COLUMNS, [line for line in lines if "case" in line]),
        (OF_POLICIES, [_with_passes(line) for line in lines if "policy" in line]),
    ):
        if rows:
            print("| " + " | ".join(columns.values()) + " |")
            print("|" + "---|" * len(columns))
        for row in rows:
            print("| " + " | ".join(cell(name, row.get(name)) for name in columns) + " |")


def _with_passes(line: dict[str, Any]) -> dict[str, Any]:
    """Tell the widest gap of what was settled in order, as a part of it (None: one objective only)."""
    return {**line, "widest": max(line["passes"].values(), default=None)}


def cell(name: str, value: Any) -> str:
    """Write one value: gaps in percent, unknown as a dash."""
    if value is None or value == float("inf"):
        return "–"
    if name in PERCENT:
        return f"{100 * value:.3g} %"
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else str(value)


if __name__ == "__main__":
    main()

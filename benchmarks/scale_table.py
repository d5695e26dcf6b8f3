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
    "gap_5s": "gap at 5 s",
    "gap": "gap at the end",
    "placed_gap": "gap when placed",
    "moved_gpus": "GPUs moved",
    "peak_mib": "peak, MiB",
}
PERCENT = {"gap_1s", "gap_5s", "gap", "placed_gap"}


def main() -> None:
    texts = [Path(name).read_text(encoding="utf-8") for name in sys.argv[1:]] or [sys.stdin.read()]
    lines = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
    rows = [line for line in lines if "run" in line]
    print("| " + " | ".join(COLUMNS.values()) + " |")
    print("|" + "---|" * len(COLUMNS))
    for row in rows:
        print("| " + " | ".join(cell(name, row.get(name)) for name in COLUMNS) + " |")


def cell(name: str, value: Any) -> str:
    """Write one value: gaps in percent, unknown as a dash."""
    if value is None or value == float("inf"):
        return "–"
    if name in PERCENT:
        return f"{100 * value:.3g} %"
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else str(value)


if __name__ == "__main__":
    main()

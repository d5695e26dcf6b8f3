"""The sizes of a batch that memory allows, as text and data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from libra_plan.planner.report.text_table import PLAIN, Page, table_text
from libra_plan.planner.telemetry.batch_sizes import BatchSizes
from libra_plan.profiles.counting import counted

__all__ = ["batch_data", "batch_text"]


def batch_text(found: BatchSizes, current: int, *, recorded: bool, page: Page = PLAIN) -> str:
    """Return a row for every size, and the advice; `recorded`: memory comes from a recording."""
    rows = [
        [
            f"{row.size}{' ←' if row.size == current else ''}",
            "" if row.accumulation is None else str(row.accumulation),
            "outside the profile" if row.needed_mib is None else f"{row.needed_mib:.0f}",
            "yes" if row.fits_with_margin else "barely" if row.fits else "no",
        ]
        for row in found.sizes
    ]
    table = table_text(["size", "accumulation", "needs up to MiB", "fits"], rows, (1, 2), page)
    advice = found.advice
    now = "stay at" if advice.size == current else "go to"
    over = f" after {counted(found.windows, 'window')}" if recorded else ""
    largest = found.largest or "none"
    spare = f"with {advice.state.margin:.0%} to spare of {advice.limit_mib:.0f} MiB: {largest}"
    return f"{table}\n\n{now} {advice.size}{over} ({advice.reason}); {spare}"


def batch_data(found: BatchSizes) -> dict[str, Any]:
    """Return the same as data."""
    step = {
        "size": found.advice.size,
        "accumulation": found.advice.accumulation,
        "changed": found.changes > 0,
        "windows": found.windows,
        "changes": found.changes,
        "limit_mib": found.advice.limit_mib,
        "reason": found.advice.reason,
    }
    return {"next": step, "largest": found.largest, "sizes": [asdict(each) for each in found.sizes]}

"""How figures are written in findings."""

from __future__ import annotations

from collections.abc import Sequence

from libra_plan.errors import few

__all__ = ["duration", "named", "whose"]


def duration(seconds: float) -> str:
    """Write seconds in the unit that people think in."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def named(gpus: Sequence[str]) -> str:
    """Write the names of GPUs, a few of many."""
    return few(gpus, 4)


def whose(task: str, role: str) -> str:
    """Name a role; logs may not name the task."""
    return f"{task}/{role}" if task else role

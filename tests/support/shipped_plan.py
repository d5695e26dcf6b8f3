"""The shipped workload, planned once a process on eight GPUs and on two, where tasks have to wait."""

from __future__ import annotations

from functools import cache

import libra_plan as lp

__all__ = ["shipped_plan"]


@cache
def shipped_plan(gpus: int = 8) -> lp.Plan:
    """Solve the shipped workload."""
    return lp.solve("profiles", gpus=gpus, deterministic=True)

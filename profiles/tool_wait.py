"""How long a turn of a task waits for its tools."""

from __future__ import annotations

import math
from collections.abc import Iterable

from libra_plan.profiles.schema_workload import RoleSpec

__all__ = ["tool_wait_of"]


def tool_wait_of(roles: Iterable[RoleSpec]) -> tuple[float, float]:
    """Return the mean wait of a turn, seconds, and the sigma of its log-normal law.

    A turn passes through every `env` role: means and variances add up, and the sum is taken as
    log-normal again (Fenton and Wilkinson).
    """
    waits = [(each.tool_wait_s_per_turn or 0.0, each.tool_wait_sigma or 0.0) for each in roles]
    mean = sum(wait for wait, _ in waits)
    if mean == 0.0:
        return 0.0, 0.0
    variance = sum(wait**2 * math.expm1(sigma**2) for wait, sigma in waits)
    return mean, math.sqrt(math.log1p(variance / mean**2))

"""Requirements of tasks that come before the policy: deadlines, then latency-first step times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from libra_plan.planner.optimize.constraints import Choice
from libra_plan.planner.optimize.master import Search
from libra_plan.planner.optimize.policies.base import BestRates
from libra_plan.planner.optimize.policies.deadlines import keep_deadlines
from libra_plan.planner.optimize.policies.latency import latency_first
from libra_plan.planner.plan import Pass

__all__ = ["Required", "require"]


@dataclass(frozen=True, slots=True)
class Required:
    """Deadlines that cannot be kept, passes made, and a choice that keeps everything required."""

    missed: Mapping[int, BestRates] = field(default_factory=dict)
    passes: tuple[Pass, ...] = ()
    hint: Choice | None = None


def require(search: Search, hint: Choice | None) -> Required:
    """Add the rows that all later passes must keep to the search."""
    missed, kept = keep_deadlines(search, hint)
    passes, fastest = latency_first(search, kept or hint)
    return Required(missed, passes, fastest or kept)

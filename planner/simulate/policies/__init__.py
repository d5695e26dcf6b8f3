"""The policies that are compared, by name."""

from __future__ import annotations

from collections.abc import Callable

from libra_plan.errors import InputError
from libra_plan.planner.simulate.policies.ours import Ours, loop_without
from libra_plan.planner.simulate.policies.rivals import (
    GavelLike,
    GreedyByQueue,
    LibraRule,
    RuleBased,
    SiaLike,
)
from libra_plan.planner.simulate.policies.static import BestStatic, Clairvoyant, FixedSplit
from libra_plan.planner.simulate.policy import AllocationPolicy

__all__ = ["POLICIES", "make_policy"]

POLICIES: dict[str, Callable[[], AllocationPolicy]] = {
    "uniform": lambda: FixedSplit("uniform", even_roles=True),
    "equal": lambda: FixedSplit("equal"),
    "by-weight": lambda: FixedSplit("by-weight", weighted=True),
    "best-static": BestStatic,
    "rule-based": RuleBased,
    "greedy-queue": GreedyByQueue,
    "rlinf": lambda: FixedSplit("rlinf", smallest_layouts=True),
    "libra": LibraRule,
    "sia-like": SiaLike,
    "gavel-like": GavelLike,
    "ours": Ours,
    "ours-no-horizon": lambda: Ours(loop_without("horizon")),
    "ours-no-forecast": lambda: Ours(loop_without("forecast")),
    "ours-no-hysteresis": lambda: Ours(loop_without("hysteresis")),
    "ours-no-elastic": lambda: Ours(loop_without("elastic")),
    "ours-no-mixed": lambda: Ours(loop_without("mixed")),
    "ours-no-sharing": lambda: Ours(loop_without("sharing")),
    "clairvoyant": Clairvoyant,
}
"""Functions that make a new policy for a run, by name."""


def make_policy(name: str) -> AllocationPolicy:
    """Return a new policy of that name."""
    if name not in POLICIES:
        raise InputError("there is no such policy", got=name, allowed=", ".join(POLICIES))
    return POLICIES[name]()

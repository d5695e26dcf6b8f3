"""The policies that are compared, by name."""

from __future__ import annotations

from collections.abc import Callable

from libra_plan.errors import InputError
from libra_plan.planner.simulate.policies.clairvoyant import Clairvoyant
from libra_plan.planner.simulate.policies.libra import LibraRule
from libra_plan.planner.simulate.policies.ours import Ours, without
from libra_plan.planner.simulate.policies.published import GavelLike, SiaLike
from libra_plan.planner.simulate.policies.reactive import GreedyByQueue, RuleBased
from libra_plan.planner.simulate.policies.static import BestStatic, FixedSplit
from libra_plan.planner.simulate.policy import Policy

__all__ = ["POLICIES", "make_policy"]

POLICIES: dict[str, Callable[[], Policy]] = {
    "uniform": lambda: FixedSplit("uniform", weighted=False, even_roles=True),
    "equal": lambda: FixedSplit("equal", weighted=False),
    "by-weight": lambda: FixedSplit("by-weight", weighted=True),
    "best-static": BestStatic,
    "rule-based": RuleBased,
    "greedy-queue": GreedyByQueue,
    "rlinf": lambda: FixedSplit("rlinf", weighted=False, smallest_layouts=True),
    "libra": LibraRule,
    "sia-like": SiaLike,
    "gavel-like": GavelLike,
    "ours": Ours,
    "ours-no-horizon": lambda: Ours(without("horizon")),
    "ours-no-forecast": lambda: Ours(without("forecast")),
    "ours-no-hysteresis": lambda: Ours(without("hysteresis")),
    "ours-no-elastic": lambda: Ours(without("elastic")),
    "ours-no-mixed": lambda: Ours(without("mixed")),
    "ours-no-sharing": lambda: Ours(without("sharing")),
    "clairvoyant": Clairvoyant,
}
"""What makes each policy anew, for a run."""


def make_policy(name: str) -> Policy:
    """Make a policy by its name."""
    if name not in POLICIES:
        raise InputError("there is no such policy", got=name, allowed=", ".join(POLICIES))
    return POLICIES[name]()

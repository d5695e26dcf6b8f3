"""How long a change may be expected to last: the time it has to pay for itself."""

from __future__ import annotations

from collections.abc import Iterable

from libra_plan.planner.controller.policy import StayPolicy
from libra_plan.planner.controller.state import LoopState, Stays

__all__ = ["ended", "horizon_s"]


def horizon_s(state: LoopState, running: Iterable[str], policy: StayPolicy) -> float:
    """Give the expected stay of a placement, seconds.

    The mean of an exponential law from stays that ended and those that go on (censored): all seconds
    lived through ÷ stays that ended, a prior counted in. What ran before the loop began counts from
    then on.
    """
    now = state.clock.loop_s
    going_on = sum(now - (state.clock_for(task).placed_s or 0.0) for task in running)
    lived = policy.prior_s * policy.prior_stays + state.stays.seconds + going_on
    return min(policy.most_s, max(policy.least_s, lived / (policy.prior_stays + state.stays.ended)))


def ended(stays: Stays, seconds: Iterable[float]) -> Stays:
    """Count stays that have ended."""
    known = list(seconds)
    return Stays(stays.ended + len(known), stays.seconds + sum(known))

"""The time a change has to pay for itself comes from how long placements have stayed."""

from __future__ import annotations

from libra_plan.planner.controller.horizon import ended, horizon_s
from libra_plan.planner.controller.policy import StayPolicy
from libra_plan.planner.controller.state import Clock, LoopState, Stays, TaskClock

POLICY = StayPolicy()


def state(loop_s: float, placed_s: float | None, stays: Stays = Stays()) -> LoopState:  # noqa: B008
    return LoopState(clock=Clock(loop_s), clocks=(TaskClock("a", placed_s),), stays=stays)


def test_without_history_the_prior_counts() -> None:
    """A first look reckons with the policy's own stay."""
    assert horizon_s(LoopState(), [], POLICY) == POLICY.prior_s


def test_stays_that_go_on_count() -> None:
    """A placement that has lasted a day is no sign of an hour: censored stays lengthen the horizon."""
    assert horizon_s(state(86_400.0, 0.0), ["a"], POLICY) > 2 * POLICY.prior_s


def test_short_stays_shorten_it_to_the_limit() -> None:
    """Where everything moves every minute, nothing dear may move at all."""
    assert horizon_s(state(10.0, None, Stays(100, 6000.0)), ["a"], POLICY) == POLICY.least_s


def test_it_never_passes_its_limit() -> None:
    """A week without change is no promise of another."""
    assert horizon_s(state(1e6, 0.0), ["a"], POLICY) == POLICY.most_s


def test_what_ran_before_the_loop_counts_from_its_beginning() -> None:
    """Nobody saw it placed, but it has stayed as long as the loop has looked."""
    assert horizon_s(state(7200.0, None), ["a"], POLICY) == horizon_s(state(7200.0, 0.0), ["a"], POLICY)
    assert ended(Stays(1, 10.0), [5.0]) == Stays(2, 15.0)

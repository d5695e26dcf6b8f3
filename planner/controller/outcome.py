"""What a rung of the ladder came to: a decision, or what it counted on the way to none."""

from __future__ import annotations

from dataclasses import dataclass

from libra_plan.planner.controller.choose import Chosen, Proposal, plan_of
from libra_plan.planner.controller.decision import Considered, Decision, Rung
from libra_plan.planner.controller.hysteresis import Weighed
from libra_plan.planner.controller.snapshot import Desk
from libra_plan.planner.controller.state import Pending
from libra_plan.planner.plan import Plan, QueuedTask
from libra_plan.planner.problem import Problem
from libra_plan.planner.verify import violations_of

__all__ = ["Outcome", "adopt", "keep", "prices_by_name", "require_sound"]


@dataclass(frozen=True)
class Outcome:
    """A decision (None: this rung has nothing to say), and what the next state takes from it.

    `pending` None: as before. `counted` are looks that asked for batch and elastic steps. `problem` is
    what the plan answers, None: the desk's.
    """

    decision: Decision | None
    pending: tuple[Pending, ...] | None = None
    prices: tuple[tuple[str, float], ...] | None = None
    counted: tuple[Pending, ...] = ()
    problem: Problem | None = None

    def require(self) -> Decision:
        """Give the decision; the last rung always has one."""
        assert self.decision is not None
        return self.decision


def prices_by_name(desk: Desk, found: Proposal) -> tuple[tuple[str, float], ...]:
    """Name the prices of a search, for the next look."""
    return tuple(zip(desk.market.resources.names, map(float, found.prices), strict=True))


def keep(
    desk: Desk,
    rule: str,
    why: str,
    *,
    pending: tuple[Pending, ...] | None = None,
    bound: float | None = None,
    prices: tuple[tuple[str, float], ...] | None = None,
    considered: tuple[Considered, ...] = (),
    orders: tuple[str, ...] = (),
) -> Outcome:
    """Decide that everything stays as it is."""
    decision = Decision(
        Rung.KEEP,
        rule,
        why,
        running=desk.running,
        bound=bound,
        considered=considered,
        orders=orders,
    )
    return Outcome(decision, pending, prices, desk.state.batches)


def adopt(
    desk: Desk,
    rung: Rung,
    rule: str,
    why: str,
    found: Proposal,
    chosen: Chosen,
    weighed: Weighed,
    considered: tuple[Considered, ...] = (),
    waits: dict[str, QueuedTask] | None = None,
) -> Outcome | None:
    """Place a choice and decide for it; None when its blocks cannot be placed."""
    plan = plan_of(desk.market, chosen, found.prices, waits or {})
    if plan is None:
        return None
    require_sound(desk.problem, plan)
    decision = Decision(
        rung,
        rule,
        why,
        weighed.moves,
        weighed.gain,
        weighed.net,
        weighed.cost,
        running=desk.running,
        bound=found.bound,
        considered=considered,
        plan=plan,
    )
    return Outcome(decision, (), prices_by_name(desk, found), desk.state.batches)


def require_sound(problem: Problem, plan: Plan) -> None:
    """Let the verifier, which shares no code with the search, look at a plan before it is decided for."""
    violations = violations_of(problem, plan)
    if violations:
        listed = "; ".join(str(each) for each in violations[:5])
        raise RuntimeError(f"the plan breaks its own problem, a defect of ours: {listed}")

"""Act at once: what is broken, arrived, came back or is to pause. Survivors stay where they are."""

from __future__ import annotations

from collections.abc import Sequence

from libra_plan.planner.controller.choose import Freedom, Proposal, choose, plan_of
from libra_plan.planner.controller.configuration_values import Floats, charged, prices_of
from libra_plan.planner.controller.decision import Decision, Rung
from libra_plan.planner.controller.events import urgent_tasks
from libra_plan.planner.controller.hysteresis import directions, over_caps, weigh
from libra_plan.planner.controller.outcome import Outcome, keep, prices_by_name, require_sound
from libra_plan.planner.controller.snapshot import Desk
from libra_plan.planner.plan import QueuedTask

__all__ = ["left_waiting", "movable", "urgent", "why_of"]


def urgent(desk: Desk) -> Outcome | None:
    """Place what must be placed now on what survivors leave free; None when nothing is urgent.

    What then still waits may have other tasks moved for it, by the ordinary rule but on the first look.
    """
    free = movable(desk)
    if not free:
        return None
    frozen = frozenset(range(len(desk.market.tasks))) - free
    values = [
        charged(task, desk.problem, desk.inputs.policy, desk.seen, thresholds=t not in free)[0]
        for t, task in enumerate(desk.market.tasks)
    ]
    prices = prices_of(desk.market, dict(desk.state.prices)) if desk.state.prices else None
    found = choose(desk.market, values, Freedom(frozen, desk.banned), 0.0, prices)
    found = _wider(desk, free, values, found)
    weighed = weigh(desk.market, found.chosen, values, desk.doubts, desk.inputs.policy.trust.confidence)
    if not directions(desk.market, found.chosen):
        return None
    plan = plan_of(desk.market, found.chosen, found.prices, _waits(desk))
    if plan is None:
        return keep(desk, "unplaceable", "what must be placed now fits in number, but on no nodes")
    require_sound(desk.problem, plan)
    decision = Decision(
        Rung.TASKS,
        "event",
        why_of(desk),
        weighed.moves,
        weighed.gain,
        weighed.net,
        weighed.cost,
        running=desk.running,
        bound=found.bound,
        plan=plan,
        orders=_orders(desk),
    )
    return Outcome(decision, None, prices_by_name(desk, found), desk.state.batches)


def _wider(desk: Desk, free: frozenset[int], values: Sequence[Floats], found: Proposal) -> Proposal:
    """Let others make room when something broken has no place left: within caps, stays and checkpoints."""
    homeless = [t for t in free if desk.market.tasks[t].broken and t not in found.chosen]
    if not homeless:
        return found
    policy = desk.inputs.policy
    wide = choose(desk.market, values, desk.freedom(), policy.rule.keep_within, found.prices)
    weighed = weigh(desk.market, wide.chosen, values, desk.doubts, policy.trust.confidence)
    broken = frozenset(task.id for task in desk.market.tasks if task.broken)
    better = wide.value > found.value + 1e-9
    return wide if better and over_caps(desk.problem, weighed.moves, policy.caps, broken) is None else found


def movable(desk: Desk) -> frozenset[int]:
    """List by number the tasks that are broken, urgent and waiting, or to pause and safe to."""
    names = urgent_tasks(desk.problem, desk.events)
    found = set()
    for t, task in enumerate(desk.market.tasks):
        pauses = task.id in desk.inputs.paused and bool(task.held_gpus) and t not in desk.held
        waits = task.id in names and not task.held_gpus and task.id not in desk.inputs.paused
        if task.broken or pauses or waits:
            found.add(t)
    return frozenset(found)


def left_waiting(desk: Desk) -> frozenset[str]:
    """Name urgent tasks that wait: others may be moved for them on the first look."""
    runs = {held.task for held in desk.problem.running}
    return urgent_tasks(desk.problem, desk.events) - runs - desk.inputs.paused


def _waits(desk: Desk) -> dict[str, QueuedTask]:
    return {
        name: QueuedTask(name, "paused", f"{name}: its user paused it; libra-plan task resume {name}")
        for name in desk.inputs.paused
    }


def _orders(desk: Desk) -> tuple[str, ...]:
    paused = (desk.held[t].order for t, task in enumerate(desk.market.tasks) if t in desk.held
              and task.id in desk.inputs.paused)  # fmt: skip
    return tuple(order for order in paused if order)


def why_of(desk: Desk) -> str:
    """Tell what happened, in a sentence."""
    said = []
    for event in desk.events:
        what = event.task or event.node or ("" if event.gpu is None else str(event.gpu))
        detail = f" ({event.detail})" if event.detail else ""
        said.append(f"{event.kind.value} {what}{detail}".strip())
    broken = [task.id for task in desk.market.tasks if task.broken]
    if broken:
        said.append(f"{', '.join(broken)} cannot stay as placed")
    return "; ".join(said[:6]) + (f" and {len(said) - 6} more" if len(said) > 6 else "")

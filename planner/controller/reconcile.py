"""One look of the loop: a pure function from what is known to a decision and the next state.

    inputs, state ─▶ snapshot ─▶ urgent? ─▶ batch steps? ─▶ elastic shift? ─▶ roles? tasks?

The rungs are tried from the cheapest; the first that is sufficient is taken. Nothing is read, written,
started or stopped here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from libra_plan.planner.controller.batch_steps import step_batches
from libra_plan.planner.controller.configuration_values import ValueCache, is_plain_sum
from libra_plan.planner.controller.elastic import shift_elastic
from libra_plan.planner.controller.escalation import (
    RungResult,
    keep,
    tasks_and_roles,
    urgent,
)
from libra_plan.planner.controller.other_policies import solved, solved_urgent
from libra_plan.planner.controller.snapshot import LoopInputs, Snapshot, advanced, take_snapshot
from libra_plan.planner.controller.state import Decision, LoopState, Rung, Stays, TaskClock
from libra_plan.planner.problem import Problem

__all__ = ["Reconciled", "reconcile"]


@dataclass(frozen=True)
class Reconciled:
    """A decision, the problem that its plan answers, and the next state when it is adopted or is not."""

    decision: Decision
    problem: Problem
    adopted: LoopState
    kept: LoopState


def reconcile(inputs: LoopInputs, state: LoopState, cache: ValueCache | None = None) -> Reconciled:
    """Decide what to do now. The cache saves time between looks and changes no decision."""
    clock, jumped = advanced(state.clock, inputs.now, inputs.policy.safety.clock_tolerance_s)
    if jumped is not None:
        after = replace(state, looks=state.looks + 1, clock=clock)
        decision = Decision(Rung.KEEP, "clock", f"{jumped}: nothing is changed on such a look")
        return Reconciled(decision, inputs.problem, after, after)
    snapshot = take_snapshot(inputs, state, clock, cache or ValueCache())
    return _concluded(snapshot, _escalate(snapshot))


def _escalate(snapshot: Snapshot) -> RungResult:
    """Try the rungs from the cheapest."""
    plain = is_plain_sum(snapshot.problem)
    at_once = urgent(snapshot) if plain else solved_urgent(snapshot)
    if at_once is not None:
        return at_once
    if snapshot.stale is not None:
        return keep(snapshot, "telemetry", f"{snapshot.stale}: nothing is changed without it")
    for rung in (step_batches, shift_elastic) if plain else (step_batches,):
        result = rung(snapshot)
        if result.decision is not None:
            return result
        snapshot = replace(snapshot, state=replace(snapshot.state, batches=result.counted))
    return tasks_and_roles(snapshot) if plain else solved(snapshot)


def _concluded(snapshot: Snapshot, result: RungResult) -> Reconciled:
    """Return the result of a rung as a decision and the next state."""
    decision, state = result.decision, snapshot.state
    assert decision is not None  # the last rung always decides
    kept = replace(
        state,
        pending=state.pending if result.pending is None else result.pending,
        batches=result.counted,
        prices=state.prices if result.prices is None else result.prices,
    )
    decision = replace(
        decision,
        events=snapshot.events,
        notes=(*snapshot.notes, *decision.notes),
        horizon_s=snapshot.problem.horizon_s,
    )
    changes = decision.plan is not None or bool(decision.batch_steps)
    adopted = _after(kept, decision) if changes else kept
    return Reconciled(decision, result.problem or snapshot.problem, adopted, kept)


def _after(state: LoopState, decision: Decision) -> LoopState:
    """Return the state after a change: clocks of changed tasks restarted, stays that ended counted."""
    now = state.clock.loop_s
    actions = {move.task: move.action for move in decision.moves}
    ended = [task for task, action in actions.items() if action not in ("start", "shift")]
    lived_s = sum(now - (state.clock_for(task).placed_s or 0.0) for task in ended)
    return replace(
        state,
        clocks=tuple(_clock(clock, actions.get(clock.task), now) for clock in state.clocks),
        stays=Stays(state.stays.ended + len(ended), state.stays.seconds + lived_s),
        pending=() if decision.plan is not None else state.pending,
        batches=(),
    )


def _clock(clock: TaskClock, action: str | None, now: float) -> TaskClock:
    if action is None:
        return clock
    if action == "pause":
        return replace(clock, placed_s=None, progressed=False, waits_since_s=now)
    if action == "shift":
        return replace(clock, shifted_s=now)
    return replace(clock, placed_s=now, progressed=False, waits_since_s=None)

"""One look: a pure function from what is known to a decision and the next state.

    inputs, state ─▶ clocks, averages, events ─▶ desk ─▶ urgent? ─▶ batches? ─▶ elastic? ─▶ roles? tasks?

The rungs are tried from the cheapest; the first that is sufficient is taken. Nothing is read, written,
started or stopped here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from libra_plan.planner.controller import other_policies
from libra_plan.planner.controller.configuration_values import Memo, is_plain_sum
from libra_plan.planner.controller.decision import Decision, Rung
from libra_plan.planner.controller.escalation import batches, elastic, tasks_and_roles
from libra_plan.planner.controller.horizon import ended
from libra_plan.planner.controller.outcome import Outcome, keep
from libra_plan.planner.controller.snapshot import Desk, LookInputs, lay_out, ticked
from libra_plan.planner.controller.state import LoopState, TaskClock
from libra_plan.planner.controller.urgent import urgent
from libra_plan.planner.problem import Problem

__all__ = ["Looked", "look"]


@dataclass(frozen=True)
class Looked:
    """A decision; the problem its plan answers; the next state when it is adopted, and when it is not."""

    decision: Decision
    problem: Problem
    adopted: LoopState
    kept: LoopState


def look(inputs: LookInputs, state: LoopState, memo: Memo | None = None) -> Looked:
    """Decide what to do now. `memo` remembers tables between looks; it changes only the time taken."""
    clock, jumped = ticked(state.clock, inputs.now, inputs.policy.safety.clock_tolerance_s)
    if jumped is not None:
        after = replace(state, looks=state.looks + 1, clock=clock)
        decision = Decision(Rung.KEEP, "clock", f"{jumped}: nothing is changed on such a look")
        return Looked(decision, inputs.problem, after, after)
    desk = lay_out(inputs, state, clock, memo or Memo())
    return _concluded(desk, _decided(desk))


def _decided(desk: Desk) -> Outcome:
    plain = is_plain_sum(desk.problem)
    at_once = urgent(desk) if plain else other_policies.urgent_with_solver(desk)
    if at_once is not None:
        return at_once
    if desk.telemetry is not None:
        return keep(desk, "telemetry", f"{desk.telemetry}: nothing is changed without it")
    step = batches(desk)
    if step.decision is not None:
        return step
    desk = replace(desk, state=replace(desk.state, batches=step.counted))
    shift = elastic(desk) if plain else Outcome(None, counted=step.counted)
    if shift.decision is not None:
        return shift
    desk = replace(desk, state=replace(desk.state, batches=shift.counted))
    return tasks_and_roles(desk) if plain else other_policies.look_with_solver(desk)


def _concluded(desk: Desk, outcome: Outcome) -> Looked:
    decision = outcome.require()
    prices = desk.state.prices if outcome.prices is None else outcome.prices
    kept = replace(
        desk.state,
        pending=desk.state.pending if outcome.pending is None else outcome.pending,
        batches=outcome.counted,
        prices=prices,
    )
    decision = replace(
        decision,
        events=desk.events,
        notes=(*desk.notes, *decision.notes),
        horizon_s=desk.problem.horizon_s,
    )
    problem = outcome.problem or desk.problem
    if decision.plan is None and not decision.batch_steps:
        return Looked(decision, problem, kept, kept)
    return Looked(decision, problem, _after(kept, decision), kept)


def _after(state: LoopState, decision: Decision) -> LoopState:
    """Set the clocks of what was changed, and count the stays that ended."""
    now = state.clock.loop_s
    actions = {move.task: move.action for move in decision.moves}
    ends = [
        now - (state.clock_for(task).placed_s or 0.0) for task, action in actions.items() if action != "start"
    ]
    clocks = tuple(_clock(each, actions.get(each.task), now) for each in state.clocks)
    return replace(
        state,
        clocks=clocks,
        stays=ended(state.stays, ends if decision.rung is not Rung.ELASTIC else []),
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

"""Derive recorded decisions again from their recorded inputs, bit for bit, or under another policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from libra_plan.planner.controller.configuration_values import Memo
from libra_plan.planner.controller.decision import Decision
from libra_plan.planner.controller.policy import ReplanPolicy
from libra_plan.planner.controller.reconcile import look
from libra_plan.planner.controller.record import digest_of, to_bytes
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.controller.state_store import LookRow, StateStore
from libra_plan.planner.problem import Problem

__all__ = ["Replayed", "replay"]


@dataclass(frozen=True)
class Replayed:
    """A look derived again: whether decision and state are the same bytes, and what it is now.

    Under another policy `same` tells whether the same kind of change was decided for.
    """

    look: LookRow
    same: bool
    decision: Decision


def replay(
    store: StateStore,
    passed: list[int] | None = None,
    *,
    first: int = 0,
    policy: ReplanPolicy | None = None,
) -> Iterator[Replayed]:
    """Derive looks in order, from the first whose state was kept; those before it go to `passed`.

    Under another policy each look sees the world as it was recorded, so a change that only the other
    policy makes is told of and then taken as not made.
    """
    state: LoopState | None = None
    problems: dict[str, Problem] = {}
    memo = Memo()
    for row in store.looks(first=first):
        if state is None or (policy is None and digest_of(to_bytes(state)) != row.state_before):
            state = store.state_at(row.state_before)
        if state is None:
            if passed is not None:
                passed.append(row.id)
            continue
        if row.problem not in problems:
            problems = {row.problem: store.problem(row.problem)}
        inputs = store.inputs(row.id, problems[row.problem])
        if policy is not None:
            inputs = replace(inputs, policy=policy)
        looked = look(inputs, state, memo)
        state = looked.adopted if row.adopted else looked.kept
        if policy is not None:
            said = looked.decision
            yield Replayed(row, (said.rung.value, said.rule) == (row.rung, row.rule), said)
            continue
        same = digest_of(to_bytes(looked.decision)) == row.decision_digest
        same = same and digest_of(to_bytes(state)) == row.state_after
        yield Replayed(row, same, looked.decision)

"""What came of decisions: the stage times a change promised against those seen afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import insert, select

from libra_plan.planner.controller import store_schema as s
from libra_plan.planner.controller.state_store import StateStore

__all__ = ["OutcomeRow", "Realised", "all_outcomes", "note_outcomes", "outcomes_of"]


@dataclass(frozen=True, slots=True)
class Realised:
    """A role as it runs: predicted and seen seconds of its stage."""

    task: str
    role: str
    predicted_s: float
    realised_s: float


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """What one change promised of a role and what was seen, at a later look."""

    look: int
    task: str
    role: str
    predicted_s: float
    realised_s: float
    seen_at_look: int


def note_outcomes(store: StateStore, number: int, realised: Iterable[Realised]) -> None:
    """Note for the last look that was applied what its tasks' roles take now, once each."""
    applied = [row for row in store.looks(newest=200) if row.outcome == "applied" and row.id < number]
    if not applied:
        return
    last = applied[-1]
    decision = store.decision(last.id)
    promised = {
        (task.task, role.role): role.choice.option.time_s.value
        for task in (decision.plan.running if decision.plan is not None else ())
        for role in task.roles
        if task.task in {move.task for move in decision.moves}
    }
    if not promised:
        return
    with store.begin() as connection:
        known = {
            (row.task, row.role)
            for row in connection.execute(
                select(s.outcomes.c.task, s.outcomes.c.role).where(s.outcomes.c.look == last.id)
            )
        }
        for each in realised:
            key = (each.task, each.role)
            if key in promised and key not in known:
                connection.execute(
                    insert(s.outcomes).values(
                        look=last.id,
                        task=each.task,
                        role=each.role,
                        predicted_s=promised[key],
                        realised_s=each.realised_s,
                        seen_at_look=number,
                    )
                )


def outcomes_of(store: StateStore, look: int) -> list[OutcomeRow]:
    """List what came of a look."""
    with store.begin() as connection:
        rows = connection.execute(select(s.outcomes).where(s.outcomes.c.look == look)).all()
    return [OutcomeRow(*row) for row in rows]


def all_outcomes(store: StateStore) -> list[OutcomeRow]:
    """List what came of every look, oldest first."""
    with store.begin() as connection:
        rows = connection.execute(select(s.outcomes).order_by(s.outcomes.c.look)).all()
    return [OutcomeRow(*row) for row in rows]

"""Which tasks were moved: from the store of what moves cost, else from the record of the re-plan loop."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from libra_plan.errors import ProfileError, Where
from libra_plan.planner.controller.store_open import DATABASE
from libra_plan.planner.doctor.tracks import MovedTask
from libra_plan.profiles.document import shown
from libra_plan.profiles.switch_costs import STORE, read_switch_costs

__all__ = ["moves_in"]

_ACTIONS = {"grow": "resize", "shrink": "resize", "shift": "resize"}


def moves_in(folder: Path) -> list[MovedTask] | None:
    """Read the moves recorded in the folder of a run; None when nobody records any there.

    What a supervisor measured comes before what the loop decided, which does not say what was lost.
    """
    if (folder / STORE).is_file():
        return _measured(folder / STORE)
    if (folder / DATABASE).is_file():
        return _decided(folder / DATABASE)
    return None


def _decided(path: Path) -> list[MovedTask]:
    """Give the moves of every look whose plan was written."""
    from libra_plan.planner.controller.state_store import StateStore

    store = StateStore.open(path, create=False)
    try:
        return [
            MovedTask(
                move.task,
                row.wall_s,
                _ACTIONS.get(move.action, move.action),
                move.gpus_before,
                move.gpus_after,
                None,
            )
            for row in store.looks()
            if row.adopted
            for move in store.decision(row.id).moves
        ]
    finally:
        store.close()


def _measured(path: Path) -> list[MovedTask]:
    found = []
    for number, record in enumerate(read_switch_costs(path), start=1):
        try:
            at = datetime.fromisoformat(record.at.replace("Z", "+00:00"))  # Python 3.10 knows no Z
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            raise ProfileError(
                "the record of a move has no time",
                got=record.at,
                allowed="ISO 8601 with its zone",
                where=Where(shown(path), line=number, key="at"),
            )
        found.append(
            MovedTask(
                record.task,
                at.timestamp(),
                record.action,
                record.gpus_before,
                record.gpus_after,
                record.lost_s,
            )
        )
    return found

"""Which tasks were moved, from the store of what moves cost."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from libra_plan.errors import ProfileError, Where
from libra_plan.planner.doctor.tracks import Move
from libra_plan.profiles.document import shown
from libra_plan.profiles.switch_costs import STORE, read_switch_costs

__all__ = ["moves_in"]


def moves_in(folder: Path) -> list[Move] | None:
    """Read the moves a supervisor recorded in its folder; None when it recorded none there."""
    path = folder / STORE
    if not path.is_file():
        return None
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
            Move(
                record.task,
                at.timestamp(),
                record.action,
                record.gpus_before,
                record.gpus_after,
                record.lost_s,
            )
        )
    return found

"""Recorded costs of moves: one JSON line per task that was moved, as the supervisor measured it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from libra_plan.errors import ProfileError, Where
from libra_plan.profiles.document import shown
from libra_plan.profiles.schema_base import File

__all__ = [
    "FEWEST",
    "STORE",
    "RoleSwitch",
    "SwitchPrice",
    "SwitchRecord",
    "read_switch_costs",
    "switch_prices",
]

STORE = "switch_costs.jsonl"
FEWEST = 5  # records of a task from which its price is taken
_NEWEST = 20  # of them count: models and file systems change


Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e8)]  # a move of years is a damaged line


class RoleSwitch(File, frozen=True, kw_only=True):
    """The times of one role: seconds to start, to load and to its first step; None if not reported."""

    role: str
    gpus: int
    start_s: Seconds | None
    load_s: Seconds | None
    warm_up_s: Seconds | None


class SwitchRecord(File, frozen=True, kw_only=True):
    """One move of a task. Seconds; None: not known.

    `drain_s` and `save_s` add up to `checkpoint_s`, from the order to the complete checkpoint.
    `lost_s` is the time without work: saving, stopping and the slowest role's start, load and warm-up.
    """

    schema_version: Literal[1]
    task: str
    action: Literal["start", "stop", "resize", "move"]
    gpu_class: str | None
    gpus_before: int
    gpus_after: int
    checkpoint_s: Seconds | None
    drain_s: Seconds | None
    save_s: Seconds | None
    stop_s: Seconds | None
    roles: tuple[RoleSwitch, ...]
    lost_s: Seconds | None
    at: str


class SwitchPrice(msgspec.Struct, frozen=True):
    """The price of a task's moves: the 90th percentile (s) of so many recorded ones."""

    p90_s: float
    records: int


def read_switch_costs(path: Path) -> list[SwitchRecord]:
    """Read a store, oldest record first; a last line that was cut off does not count."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as problem:
        raise ProfileError(
            "the recorded costs of moves cannot be read", got=problem.strerror, where=Where(shown(path))
        ) from None
    if lines and not lines[-1].endswith(b"\n"):
        del lines[-1]
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(msgspec.json.decode(line, type=SwitchRecord))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise ProfileError(
                "this is no record of a move",
                got=problem,
                way_out="remove the line, or name another file with --switch-costs",
                where=Where(shown(path), line=number),
            ) from None
    return records


def switch_prices(records: Iterable[SwitchRecord]) -> dict[str, SwitchPrice]:
    """Return the price of each task with at least five moves whose cost is known whole."""
    known: dict[str, list[float]] = {}
    for record in records:
        if record.lost_s is not None and record.action in ("resize", "move"):
            known.setdefault(record.task, []).append(record.lost_s)
    return {
        task: SwitchPrice(_p90(lost[-_NEWEST:]), len(lost[-_NEWEST:]))
        for task, lost in known.items()
        if len(lost) >= FEWEST
    }


def _p90(values: Sequence[float]) -> float:
    """Return the smallest value that nine of ten do not exceed."""
    return sorted(values)[math.ceil(0.9 * len(values)) - 1]

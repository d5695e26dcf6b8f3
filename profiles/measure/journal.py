"""The measuring journal: one JSON line a record, on disk before the next point starts.

Records: `setup` (who measures what on which machine, once a profile) and `point`. A restarted run
reads it back, drops a torn last line and skips what is done. The last record of a point counts.
Only the standard library is needed, so a bare GPU machine can measure and another one can convert.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from libra_plan.errors import ProfileError, Where
from libra_plan.profiles.measure.plan import PlannedPoint

__all__ = ["Journal"]

Record = dict[str, object]
# A restart on another day continues; on another machine or stack it may not.
_NOT_IDENTITY = ("method", "notes")


class Journal:
    """An append-only file of records; every `write` is synced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.setups: dict[str, Record] = {}
        self.points: dict[tuple[str, PlannedPoint], Record] = {}
        if path.exists():
            self._load()

    def _load(self) -> None:
        raw = self.path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) != len(raw):  # the machine died while writing: that point was not finished
            with self.path.open("r+b") as stream:
                stream.truncate(len(whole))
        for number, line in enumerate(whole.splitlines(), start=1):
            where = Where(str(self.path), number)
            try:
                record = json.loads(line)
                self._keep(record)
            except (ValueError, KeyError, TypeError) as error:
                raise ProfileError("not a measuring journal", got=error, where=where) from error

    def _keep(self, record: Record) -> None:
        profile = str(record["profile"])
        if record["record"] == "setup":
            self.setups[profile] = record
        else:
            point = PlannedPoint(_whole(record["batch_sequences"]), _whole(record["seq_len_tokens"]))
            self.points[profile, point] = record

    def done(self, profile: str) -> dict[PlannedPoint, str]:
        """Return the points that need no further try, with their status; failed ones are tried again."""
        return {
            point: str(record["status"])
            for (name, point), record in self.points.items()
            if name == profile and record["status"] in ("ok", "oom")
        }

    def begin(self, profile: str, setup: Mapping[str, object]) -> None:
        """Record what a profile is measured on, or refuse to mix it with what is already there."""
        before = self.setups.get(profile)
        record: Record = {"record": "setup", "profile": profile, **setup}
        if before is None:
            self.write(record)
            return
        changed = [
            key
            for key in sorted({*before, *record} - set(_NOT_IDENTITY))
            if before.get(key) != json.loads(json.dumps(record.get(key)))
        ]
        if changed:
            key = changed[0]
            raise ProfileError(
                "the journal was measured on another machine or stack",
                got=f"{key}: {record.get(key)}",
                allowed=before.get(key),
                way_out="measure into another folder",
                where=Where(str(self.path), key=profile),
            )

    def write(self, record: Record) -> None:
        """Append one record and wait until it is on disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record, allow_nan=False) + "\n"
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
        self._keep(record)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"not a whole number: {value!r}")
    return value

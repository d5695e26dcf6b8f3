"""The measuring journal, and the profiles written from it.

One JSON line a record, on disk before the next point starts: `setup` (who measures what on which
machine, once a profile) and `point`. A restarted run reads it back, drops a torn last line and skips
what is done. The last record of a point counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from libra_plan.errors import ProfileError, Where
from libra_plan.profiles.measure.plan import PlannedPoint
from libra_plan.profiles.profile_folder import sha256_of, write_folder
from libra_plan.profiles.schema import Point, ProfileFile

__all__ = ["MeasureJournal", "write_profiles"]

Record = dict[str, Any]
_SCHEMA_VERSION = 1
_HEADER = "# Written by `libra-plan profile measure` from its journal.\n"
_STEP_OF = {
    "decode": "one decode step at a full context, random weights",
    "score": "one forward pass that gives log-probabilities, random weights",
    "train": "one optimizer step with full recomputation, random weights",
}
_ACCUMULATED = "one micro-batch with full recomputation beside held gradients, and its share of the step"
_TIME_DIGITS = 7  # 0.1 µs; the repeats differ by more
# A restart on another day continues; on another machine or stack it may not.
_NOT_IDENTITY = ("method", "notes")


class MeasureJournal:
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


def write_profiles(
    journal: MeasureJournal, out_dir: Path, *, source: str | None = None, gpu_class: str | None = None
) -> tuple[Path, ...]:
    """Write `<out_dir>/<profile>/profile.yaml` and `points.csv` for every profile with a point.

    `source` names the journal for the provenance, which pins it by its digest; `gpu_class` renames
    the class, which must be the cluster's word for the GPU.
    """
    folders = []
    for profile, setup in journal.setups.items():
        rows = [record for (name, _), record in sorted(journal.points.items()) if name == profile]
        if any(row["status"] == "ok" for row in rows):
            if gpu_class is not None:
                setup = setup | {"hardware": setup["hardware"] | {"gpu_class": gpu_class}}  # noqa: PLW2901
            folders.append(_write_profile(out_dir, profile, setup, rows, journal.path, source))
    return tuple(folders)


def _write_profile(
    out_dir: Path, profile: str, setup: Record, rows: list[Record], journal: Path, source: str | None
) -> Path:
    document = {
        "schema_version": _SCHEMA_VERSION,
        "id": profile,
        **{key: setup[key] for key in ("phase", "model", "hardware", "software", "method")},
        "provenance": {
            "kind": "measured",
            "points_sha256": sha256_of(b""),  # filled in when the points are text
            "source": source or journal.name,
            "source_sha256": sha256_of(journal.read_bytes()),
            "licence": "Apache-2.0",
        },
        "notes": _notes(setup),
    }
    try:
        file = msgspec.convert(document, ProfileFile)
        points = [msgspec.convert(_row(row, setup["phase"]), Point) for row in rows]
    except msgspec.ValidationError as error:
        raise ProfileError(
            "the journal holds no complete profile", got=error, where=Where(str(journal), key=profile)
        ) from error
    return write_folder(out_dir, file, points, _HEADER)


def _notes(setup: Record) -> str:
    accumulated = "micro_batches" in setup["software"].get("flags", {})
    text = _ACCUMULATED if accumulated else _STEP_OF[setup["phase"]]
    idle = (setup.get("notes") or {}).get("used_before_mib")
    if idle is not None:
        text += f"; device_used_mib counts the {idle} MiB in use before the model was built"
    return text


def _row(record: Record, phase: str) -> Record:
    """Return the columns of a point that the record knows."""
    row = {key: record[key] for key in Point.__struct_fields__ if record.get(key) is not None}
    for key in ("time_s", "time_low_s", "time_high_s"):
        if key in row:
            row[key] = round(row[key], _TIME_DIGITS)
    if "time_s" in row:  # a decode step yields one token a sequence
        tokens = row["batch_sequences"] * (1 if phase == "decode" else row["seq_len_tokens"])
        row["tokens_per_s"] = round(tokens / row["time_s"], 1)
    return row

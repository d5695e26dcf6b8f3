"""The supervisor's journal: one checksummed JSON line a record, on disk before anything is done about it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from libra_plan.errors import LaunchError, Where
from libra_plan.planner.runtime.records import Entry, Record
from libra_plan.profiles.document import shown
from libra_plan.profiles.durable import sync

__all__ = ["JOURNAL", "Journal", "open_journal", "read_journal"]

JOURNAL = "journal.jsonl"


@dataclass
class Journal:
    """A journal that is open for more records; the caller holds the folder's lock."""

    path: Path
    entries: list[Entry]
    notes: tuple[str, ...]
    boot_clock: Callable[[], float]
    utc_clock: Callable[[], float]

    def append(self, record: Record) -> Entry:
        """Write a record and wait until it is on disk; only then may it be acted on."""
        at = datetime.fromtimestamp(self.utc_clock(), timezone.utc).isoformat(timespec="milliseconds")
        before = self.entries[-1].sum if self.entries else ""
        entry = Entry(number=len(self.entries), at=at, boot_s=self.boot_clock(), record=record)
        entry = msgspec.structs.replace(entry, sum=_sum(before, entry))
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            data = msgspec.json.encode(entry) + b"\n"
            while data:
                data = data[os.write(handle, data) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        if not self.entries:
            sync(self.path.parent)
        self.entries.append(entry)
        return entry


def read_journal(folder: Path) -> list[Entry]:
    """Read a folder's journal, less a last line that was cut off; empty when there is none."""
    return _parse(folder / JOURNAL)[0]


def open_journal(folder: Path, *, boot_clock: Callable[[], float], utc_clock: Callable[[], float]) -> Journal:
    """Open a folder's journal for appending.

    What a crash cut off or zeroed at its end is moved aside and named in `notes`: a record that was not
    whole on disk was not acted on. Anything else that cannot be read stops with a LaunchError.
    """
    path = folder / JOURNAL
    entries, good, torn = _parse(path)
    notes: tuple[str, ...] = ()
    if torn:
        aside = next(
            candidate
            for number in range(1, 1_000_000)
            if not (candidate := path.with_name(f"{JOURNAL}.torn-{number}")).exists()
        )
        aside.write_bytes(torn)
        with path.open("r+b") as file:
            file.truncate(good)
            os.fsync(file.fileno())
        notes = (f"the last line of {shown(path)} was cut off and is now in {aside.name}",)
    return Journal(path, entries, notes, boot_clock, utc_clock)


def _parse(path: Path) -> tuple[list[Entry], int, bytes]:
    """Give the whole entries, how many bytes they take, and what follows them."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0, b""
    entries: list[Entry] = []
    at = 0
    for line in data.splitlines(keepends=True):
        entry = _entry(line, entries[-1].sum if entries else "", len(entries))
        if entry is None:
            break
        entries.append(entry)
        at += len(line)
    rest = data[at:]
    _refuse_damage(rest, Where(shown(path), line=len(entries) + 1))
    return entries, at, rest


def _refuse_damage(rest: bytes, where: Where) -> None:
    """Refuse what no crash leaves: each line is on disk before the next, so only the last can be torn."""
    lines = rest.count(b"\n")
    if b"\n" in rest[:-1]:
        raise LaunchError(
            "the journal was damaged in its middle, so what runs is not known for sure",
            got=f"{lines} lines from a faulty one on",
            way_out="stop what has LIBRA_PLAN_LAUNCH_ID in its environment, then move the file away",
            where=where,
        )
    if lines and _is_json(rest):
        raise LaunchError(
            "the journal's last record is not known here, or was changed",
            way_out="use the version of libra-plan that wrote it",
            where=where,
        )


def _entry(line: bytes, before: str, number: int) -> Entry | None:
    if not line.endswith(b"\n"):
        return None
    try:
        entry = msgspec.json.decode(line, type=Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return entry if entry.sum == _sum(before, entry) and entry.number == number else None


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _sum(before: str, entry: Entry) -> str:
    text = msgspec.json.encode(msgspec.structs.replace(entry, sum=before))
    return hashlib.sha256(text).hexdigest()[:16]

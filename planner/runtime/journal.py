"""The supervisor's journal: one checksummed JSON line per record, on disk before the action is taken.

The records are all that a supervisor remembers: what it is about to do, and what it has seen.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from libra_plan.errors import LaunchError, Where
from libra_plan.planner.launchers.manifest import Lifecycle, Transition
from libra_plan.profiles.document import shown
from libra_plan.profiles.durable import sync

__all__ = [
    "JOURNAL",
    "Back",
    "Begun",
    "Entry",
    "Finished",
    "Gone",
    "Intent",
    "Killing",
    "Never",
    "Opened",
    "Ordered",
    "Record",
    "Released",
    "RoleStart",
    "RunJournal",
    "Saved",
    "Started",
    "StepFailed",
    "Stopping",
    "Stuck",
    "Through",
    "Withdrawn",
    "open_journal",
    "read_journal",
]

JOURNAL = "journal.jsonl"


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class Opened(_Record, frozen=True, tag="opened"):
    """A folder becomes a run: `launch_id` marks every process it will ever start."""

    launch_id: str
    node: str
    working_folder: str


class Begun(_Record, frozen=True, tag="begun"):
    """A hand-over begins, to the manifest with this digest (None: to nothing)."""

    target: str | None
    generation: int | None
    steps: tuple[Transition, ...]
    force: bool


class Back(_Record, frozen=True, tag="back"):
    """The hand-over is called off, or continued again: these steps lead from the present state back."""

    reason: str
    steps: tuple[Transition, ...]
    force: bool


class Ordered(_Record, frozen=True, tag="ordered"):
    """A checkpoint is asked for: one that names `request`, or is newer than `after_step`."""

    task: str
    request: str
    generation: int
    folder: str
    after_step: int | None


class Saved(_Record, frozen=True, tag="saved"):
    """The checkpoint is complete; if `step` is None there is none, and the user forces the move."""

    task: str
    step: int | None
    save_s: float | None


class Withdrawn(_Record, frozen=True, tag="withdrawn"):
    """The request is withdrawn: the task continues where it is."""

    task: str


class Stopping(_Record, frozen=True, tag="stopping"):
    """The stop signal goes to every process of the task."""

    task: str


class Killing(_Record, frozen=True, tag="killing"):
    """Processes that outlived the grace period are killed: the user forces the move."""

    task: str


class Gone(_Record, frozen=True, tag="gone"):
    """No process of the task is left, and this is known of the memory of its GPUs: free or unknown."""

    task: str
    memory: str


class RoleStart(_Record, frozen=True):
    """A role, and the number of its start, which every process of it carries.

    `lifecycle` says how it is stopped, whatever becomes of its manifest.
    """

    start: int
    task: str
    role: str
    generation: int
    gpus: tuple[str, ...]
    trains: bool
    world_size: int
    lifecycle: Lifecycle
    log: str
    progress: str


class Intent(RoleStart, frozen=True, tag="intent"):
    """A role is about to be started."""


class Started(_Record, frozen=True, tag="started"):
    """The process exists on `host`, and waits to be released before it becomes the role.

    `start_time` counts seconds since that host was started.
    """

    start: int
    pid: int
    start_time: float
    host: str


class Released(_Record, frozen=True, tag="released"):
    """The process was released: the role runs."""

    start: int


class Never(_Record, frozen=True, tag="never"):
    """The process ended before it was released, so the role never ran."""

    start: int


class StepFailed(_Record, frozen=True, tag="step-failed"):
    """A step did not succeed within its deadline."""

    step: str
    reason: str


class Through(_Record, frozen=True, tag="through"):
    """A step is done."""

    step: str


class Finished(_Record, frozen=True, tag="finished"):
    """The hand-over is over, and the manifest with this digest runs (None: nothing does)."""

    running: str | None
    back: bool


class Stuck(_Record, frozen=True, tag="stuck"):
    """Even the way back failed: what runs is neither plan, and a person must look."""

    reason: str


Record = (
    Opened
    | Begun
    | Back
    | Ordered
    | Saved
    | Withdrawn
    | Stopping
    | Killing
    | Gone
    | Intent
    | Started
    | Released
    | Never
    | StepFailed
    | Through
    | Finished
    | Stuck
)


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the journal.

    `at` is UTC, for people. `boot_s` counts seconds since the host was started, which no clock step
    changes: durations are differences of it. `sum` is over the line before and this one.
    """

    number: int
    at: str
    boot_s: float
    record: Record
    sum: str = ""


@dataclass
class RunJournal:
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


def open_journal(
    folder: Path, *, boot_clock: Callable[[], float], utc_clock: Callable[[], float]
) -> RunJournal:
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
    return RunJournal(path, entries, notes, boot_clock, utc_clock)


def _parse(path: Path) -> tuple[list[Entry], int, bytes]:
    """Return the whole entries, how many bytes they take, and what follows them."""
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

"""Recordings: a folder of JSONL parts that keeps its limits and survives full disks and crashes."""

from __future__ import annotations

import fcntl
import gzip
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import msgspec

from libra_plan.errors import InputError, LockedError, Where
from libra_plan.planner.telemetry.sample import Sample, Utc
from libra_plan.planner.telemetry.sources import Clocks
from libra_plan.profiles.units import MIB

__all__ = ["SCHEMA_VERSION", "Header", "Recorder", "Retention", "parts", "version_error"]

SCHEMA_VERSION = 1
_PART = "telemetry-{:06d}.jsonl"
_PATTERNS = ("telemetry-*.jsonl", "telemetry-*.jsonl.gz")
_RETRY_S = 10.0


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="header", tag_field="kind"):
    """The first line of every part: what follows, and from where. Monotonic seconds begin anew with `run`."""

    schema_version: int
    node: str
    source: str
    run: str
    began_utc: Utc
    interval_s: float


@dataclass(frozen=True, slots=True)
class Retention:
    """When a part is closed, and what of the closed ones is kept."""

    part_mib: float = 16.0
    part_s: float = 3600.0
    keep_mib: float = 1024.0
    keep_s: float = 7 * 86400.0


def parts(folder: Path) -> list[Path]:
    """List a recording's parts, oldest first; those that are full are compressed."""
    found = [path for pattern in _PATTERNS for path in folder.glob(pattern)]
    # both are there where a crash came between compressing and deleting: the later name wins
    numbered = {number: path for path in sorted(found) if (number := _number(path)) is not None}
    return [path for _, path in sorted(numbered.items())]


@dataclass(slots=True)
class _Open:
    """The part that is being written."""

    path: Path
    file: FileIO
    bytes: int
    began_s: float


class Recorder:
    """Writes samples to a folder of its own, a whole line at a time.

    When the disk is full (or fails otherwise) it says so once, drops samples, tries again every
    ten seconds, and goes on in a new part. A part that is full is compressed. Ages are counted from
    the time of day at the start plus monotonic seconds, so that a clock that jumps deletes nothing.
    """

    def __init__(
        self,
        folder: Path,
        header: Header,
        clocks: Clocks,
        say: Callable[[str], None],
        retention: Retention | None = None,
    ) -> None:
        self._folder = folder
        self._header = header
        self._monotonic_s = clocks.monotonic_s
        self._offset_s = clocks.utc_s() - clocks.monotonic_s()
        self._say = say
        self._retention = retention or Retention()
        self._encode = msgspec.json.Encoder().encode
        self._part: _Open | None = None
        self._failed_s: float | None = None
        self._dropped = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        self._number = max((_number(path) or 0 for path in parts(folder)), default=0)

    def write(self, sample: Sample) -> None:
        """Add a sample; whatever the disk does, this does not raise."""
        now_s = self._monotonic_s()
        if self._failed_s is not None and now_s - self._failed_s < _RETRY_S:
            self._dropped += 1
            return
        try:
            part = self._part_for(now_s)
            self._append(part, self._encode(sample) + b"\n")
        except OSError as problem:
            self._fail(problem, now_s)
            return
        if self._failed_s is not None:
            self._say(f"recording again in {part.path.name}; samples lost: {self._dropped}")
            self._failed_s, self._dropped = None, 0

    def close(self) -> None:
        """Close the part and give the folder free."""
        self._close_part()
        self._lock.close()

    def _fail(self, problem: OSError, now_s: float) -> None:
        if self._failed_s is None:
            self._say(f"recording stops, monitoring goes on: {self._folder}: {problem.strerror or problem}")
        self._failed_s = now_s
        self._dropped += 1
        self._close_part()  # its last line may be torn: the next sample begins a new one

    def _part_for(self, now_s: float) -> _Open:
        part, limits = self._part, self._retention
        if part is not None and (
            part.bytes >= limits.part_mib * MIB or now_s - part.began_s >= limits.part_s
        ):
            self._close_part()
            _compress(part.path)
        if self._part is None:
            self._part = self._begin(now_s)
            self._retain(now_s)
        return self._part

    def _begin(self, now_s: float) -> _Open:
        self._number += 1
        path = self._folder / _PART.format(self._number)
        part = _Open(path, FileIO(path, "x"), 0, now_s)
        try:
            self._append(part, self._encode(self._header) + b"\n")
        except OSError:
            part.file.close()
            with suppress(OSError):
                path.unlink()
            raise
        return part

    def _append(self, part: _Open, line: bytes) -> None:
        while line:  # a disk that fills up takes a part of a line, and complains when asked again
            written = part.file.write(line)
            part.bytes += written
            line = line[written:]

    def _close_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            with suppress(OSError):
                part.file.close()

    def _retain(self, now_s: float) -> None:
        """Delete the oldest closed parts that are too old or too much."""
        oldest_s = self._offset_s + now_s - self._retention.keep_s
        kept_bytes = 0.0
        for path in reversed(parts(self._folder)):
            if self._part is not None and path == self._part.path:
                continue
            with suppress(OSError):
                info = path.stat()
                kept_bytes += info.st_size
                if kept_bytes > self._retention.keep_mib * MIB or info.st_mtime < oldest_s:
                    path.unlink()


def _compress(path: Path) -> None:
    """Put a compressed part in the place of a closed one; where that fails the part stays as it is."""
    target = path.with_name(path.name + ".gz")
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with path.open("rb") as plain, gzip.open(temporary, "wb", compresslevel=1) as packed:
            shutil.copyfileobj(plain, packed)
        stamp = path.stat().st_mtime
        os.utime(temporary, (stamp, stamp))  # retention goes by when it was written to
        temporary.replace(target)
        path.unlink()
    except OSError:
        with suppress(OSError):
            temporary.unlink()


def _number(path: Path) -> int | None:
    """Give the number of a part; None where somebody else gave the name."""
    digits = path.name.partition(".")[0].rpartition("-")[2]
    return int(digits) if digits.isdecimal() else None


def _locked(folder: Path) -> BinaryIO:
    """Lock the folder; the kernel gives it back when the process ends, however it ends."""
    file = (folder / ".lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise LockedError(
            "another monitor records into the folder", got=folder, way_out="name another folder with --out"
        ) from None
    return file


def version_error(path: Path, line: int | None, version: object) -> InputError:
    """Refuse a recording of a version this program does not know."""
    return InputError(
        "the recording has a version that is not known here",
        got=version,
        allowed=SCHEMA_VERSION,
        way_out="read it with the libra-plan that wrote it, or a newer one",
        where=Where(str(path), line, "schema_version"),
    )

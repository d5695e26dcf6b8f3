"""Recordings: a folder of JSONL parts that keeps its limits and survives full disks and crashes."""

from __future__ import annotations

import fcntl
import gzip
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import msgspec

from libra_plan.errors import InputError, LockedError, Where
from libra_plan.notes import Notes
from libra_plan.planner.telemetry.sample import NodeSample, Utc
from libra_plan.planner.telemetry.sources import Clocks
from libra_plan.profiles.units import MIB

__all__ = [
    "SCHEMA_VERSION",
    "Header",
    "RecordedSample",
    "RecordedSource",
    "Recorder",
    "RecordingReader",
    "Retention",
    "parts",
    "read_tail",
]

SCHEMA_VERSION = 1
_PART = "telemetry-{:06d}.jsonl"
_PATTERNS = ("telemetry-*.jsonl", "telemetry-*.jsonl.gz")
_RETRY_S = 10.0
_MOST_TAIL_BYTES = 64 * 2**20
_MOST_LINE_BYTES = 16 * 2**20
_NO_LINE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_RECORDING = "a folder that `libra-plan monitor --out` wrote, or one of its parts"
_Line = tuple["int | None", bytes]


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="header", tag_field="kind"):
    """The first line of every part: what follows, and from where. Monotonic seconds begin anew with `run`."""

    schema_version: int
    node: str
    source: str
    run: str
    began_utc: Utc
    interval_s: float


_DECODER: msgspec.json.Decoder[Header | NodeSample] = msgspec.json.Decoder(Header | NodeSample)


@dataclass(frozen=True, slots=True)
class Retention:
    """When a part is closed, and which closed parts are kept."""

    part_mib: float = 16.0
    part_s: float = 3600.0
    keep_mib: float = 1024.0
    keep_s: float = 7 * 86400.0


def parts(folder: Path) -> list[Path]:
    """List a recording's parts, oldest first; full ones are compressed."""
    found = [path for pattern in _PATTERNS for path in folder.glob(pattern)]
    # both are there where a crash came between compressing and deleting: the later name wins
    numbered = {number: path for path in sorted(found) if (number := _number(path)) is not None}
    return [path for _, path in sorted(numbered.items())]


def _number(path: Path) -> int | None:  # None where somebody else chose the name
    digits = path.name.partition(".")[0].rpartition("-")[2]
    return int(digits) if digits.isdecimal() else None


@dataclass(slots=True)
class _OpenPart:
    """The part that is being written."""

    path: Path
    file: FileIO
    bytes: int
    began_s: float


class Recorder:
    """Writes samples to a folder of its own, a whole line at a time.

    When the disk is full (or fails otherwise) it reports that once, drops samples, tries again every
    ten seconds, and goes on in a new part. A full part is compressed. Ages are counted from the time of
    day at the start plus monotonic seconds, so that a clock that jumps deletes nothing.
    """

    def __init__(
        self,
        folder: Path,
        header: Header,
        clocks: Clocks,
        notes: Notes,
        retention: Retention | None = None,
    ) -> None:
        self._folder = folder
        self._header = header
        self._monotonic_s = clocks.monotonic_s
        self._offset_s = clocks.utc_s() - clocks.monotonic_s()
        self._note = notes
        self._retention = retention or Retention()
        self._encode = msgspec.json.Encoder().encode
        self._part: _OpenPart | None = None
        self._failed_s: float | None = None
        self._dropped = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        self._last = max((_number(path) or 0 for path in parts(folder)), default=0)

    def write(self, sample: NodeSample) -> None:
        """Add a sample; no error of the disk is raised."""
        now_s = self._monotonic_s()
        if self._failed_s is not None and now_s - self._failed_s < _RETRY_S:
            self._dropped += 1
            return
        try:
            part = self._part_for(now_s)
            _append(part, self._encode(sample) + b"\n")
        except OSError as problem:
            if self._failed_s is None:
                reason = problem.strerror or problem
                self._note(f"recording stops, monitoring goes on: {self._folder}: {reason}")
            self._failed_s = now_s
            self._dropped += 1
            self._close_part()  # its last line may be torn: the next sample begins a new one
            return
        if self._failed_s is not None:
            self._note(f"recording again in {part.path.name}; samples lost: {self._dropped}")
            self._failed_s, self._dropped = None, 0

    def write_all(self, samples: Sequence[NodeSample]) -> None:
        """Add the samples of a look."""
        for sample in samples:
            self.write(sample)

    def close(self) -> None:
        """Close the part and unlock the folder."""
        self._close_part()
        self._lock.close()

    def _part_for(self, now_s: float) -> _OpenPart:
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

    def _begin(self, now_s: float) -> _OpenPart:
        self._last += 1
        path = self._folder / _PART.format(self._last)
        part = _OpenPart(path, FileIO(path, "x"), 0, now_s)
        try:
            _append(part, self._encode(self._header) + b"\n")
        except OSError:
            part.file.close()
            with suppress(OSError):
                path.unlink()
            raise
        return part

    def _close_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            with suppress(OSError):
                part.file.close()

    def _retain(self, now_s: float) -> None:
        """Delete the oldest closed parts beyond the limits on age and size."""
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


def _append(part: _OpenPart, line: bytes) -> None:
    while line:  # a disk that fills up takes a part of a line, and complains when asked again
        written = part.file.write(line)
        part.bytes += written
        line = line[written:]


def _compress(path: Path) -> None:
    """Replace a closed part by a compressed one; where that fails the part stays as it is."""
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


def _locked(folder: Path) -> BinaryIO:
    """Lock the folder; the kernel unlocks it when the process ends, however it ends."""
    file = (folder / ".lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise LockedError(
            "another monitor records into the folder",
            got=folder,
            way_out="name another folder as out (--out)",
        ) from None
    return file


@dataclass(frozen=True, slots=True)
class RecordedSample:
    """A sample of a recording and the run it belongs to; monotonic seconds compare within a run."""

    run: str
    sample: NodeSample


@dataclass
class RecordingReader:
    """Reads a recording, a folder or one part, oldest first; `damaged` fills while it reads."""

    path: Path
    damaged: list[Where] = field(default_factory=list)

    def __iter__(self) -> Iterator[RecordedSample]:
        """Yield every sample that can be read."""
        for part in _existing_parts(self.path):
            yield from _samples(part, _all_lines(part), self.damaged)


def read_tail(
    path: Path, last_s: float, damaged: list[Where], limit: int = _MOST_TAIL_BYTES
) -> list[RecordedSample]:
    """Read the samples of a recording's last `last_s` seconds, and at most `limit` bytes for them.

    Only the newest parts are opened, and of each only as much of the end as is left of the limit.
    """
    found: list[RecordedSample] = []
    for part in reversed(_existing_parts(path)):
        played = list(_samples(part, _last_lines(part, limit), damaged))
        with suppress(FileNotFoundError):
            limit -= part.stat().st_size
        kept = [each for each in played if _seconds_before(each, (found or played)[-1]) <= last_s]
        found = kept + found
        if len(kept) < len(played) or limit <= 0:
            break
    return found


def _seconds_before(earlier: RecordedSample, last: RecordedSample) -> float:
    """Return the seconds between two samples; only where runs differ they go by the time of day."""
    if earlier.run == last.run:
        return last.sample.monotonic_s - earlier.sample.monotonic_s
    return (last.sample.taken_utc - earlier.sample.taken_utc).total_seconds()


def _all_lines(part: Path) -> Iterator[_Line]:
    """Yield every line of a part; a compressed one that was cut off yields those before the cut."""
    if part.suffix != ".gz":
        with part.open("rb") as file:
            yield from _lines(file, 1)
        return
    with gzip.open(part, "rb") as packed:
        try:
            yield from _lines(packed, 1)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            yield None, b"cut off"


def _last_lines(part: Path, limit: int) -> Iterator[_Line]:
    """Yield the first line of a part and the whole ones among its last `limit` bytes.

    A compressed part cannot be read from its end; its length is bounded by the recorder.
    """
    if part.suffix == ".gz":
        yield from _all_lines(part)
        return
    with part.open("rb") as file:
        head = file.readline(_MOST_LINE_BYTES)
        yield 1, head
        begin = part.stat().st_size - limit
        if begin <= len(head):
            yield from _lines(file, 2)
            return
        file.seek(begin - 1)
        file.readline(_MOST_LINE_BYTES)  # most likely cut off in its middle
        yield from _lines(file, None)


def _lines(file: BinaryIO | gzip.GzipFile, number: int | None) -> Iterator[_Line]:
    """Yield the lines from here on, with their numbers where the first one's is known."""
    while line := file.readline(_MOST_LINE_BYTES):
        yield number, line
        number = None if number is None else number + 1


def _samples(part: Path, lines: Iterator[_Line], damaged: list[Where]) -> Iterator[RecordedSample]:
    """Decode the samples of a part; none where the monitor has just deleted or compressed it."""
    run = part.name
    try:
        for number, line in lines:
            try:
                record = _DECODER.decode(line)
            except _NO_LINE:
                _check_version(part, number, line)
                damaged.append(Where(str(part), number))
                continue
            if isinstance(record, NodeSample):
                yield RecordedSample(run, record)
                continue
            if record.schema_version != SCHEMA_VERSION:
                raise _unknown_version(part, number, record.schema_version)
            run = record.run
    except FileNotFoundError:
        return
    except OSError as problem:
        raise InputError(
            "the recording cannot be read", got=problem.strerror or problem, where=Where(str(part))
        ) from None


class _Version(msgspec.Struct):
    kind: str
    schema_version: object = None


def _check_version(part: Path, number: int | None, line: bytes) -> None:
    """Stop at the header of another version, whatever else it holds; a torn line has none."""
    try:
        found = msgspec.json.decode(line, type=_Version)
    except _NO_LINE:
        return
    if found.kind == "header" and found.schema_version != SCHEMA_VERSION:
        raise _unknown_version(part, number, found.schema_version)


def _unknown_version(path: Path, line: int | None, version: object) -> InputError:
    return InputError(
        "the recording has a version that is not known here",
        got=version,
        allowed=SCHEMA_VERSION,
        way_out="read it with the libra-plan that wrote it, or a newer one",
        where=Where(str(path), line, "schema_version"),
    )


def _existing_parts(path: Path) -> list[Path]:
    found = parts(path) if path.is_dir() else [path]
    if not found or not path.exists():
        raise InputError(
            "no recording there",
            got=path,
            allowed=_RECORDING,
        )
    return found


class RecordedSource:
    """Returns the samples of a recording as if it were live, as fast as they are read."""

    name = "recorded"
    live = False

    def __init__(self, path: Path) -> None:
        _existing_parts(path)  # a wrong path is reported before anything else happens
        self._path = path
        self._samples = iter(RecordingReader(path))
        self._played = False

    def read(self) -> tuple[NodeSample, ...] | None:
        """Return the next sample, None after the last; refuse what holds none."""
        played = next(self._samples, None)
        if played is None and not self._played:
            raise InputError("the recording holds no sample", got=self._path, allowed=_RECORDING)
        self._played = True
        return None if played is None else (played.sample,)

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""

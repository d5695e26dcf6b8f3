"""Read recordings back: whole, or only their end; lines that a crash has torn are counted and left out."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from libra_plan.errors import InputError, Where
from libra_plan.planner.telemetry.recording import SCHEMA_VERSION, Header, parts, version_error
from libra_plan.planner.telemetry.sample import Sample

__all__ = ["Playback", "Played", "RecordedSource", "read_tail"]

_MOST_TAIL_BYTES = 64 * 2**20
_MOST_LINE_BYTES = 16 * 2**20
_NO_LINE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_Line = tuple["int | None", bytes]


_DECODER: msgspec.json.Decoder[Header | Sample] = msgspec.json.Decoder(Header | Sample)


class _Version(msgspec.Struct):
    kind: str
    schema_version: object = None


@dataclass(frozen=True, slots=True)
class Played:
    """A sample of a recording and the run it belongs to; monotonic seconds compare within a run."""

    run: str
    sample: Sample


@dataclass
class Playback:
    """Reads a recording, a folder or one part, oldest first; `damaged` fills while it reads."""

    path: Path
    damaged: list[Where] = field(default_factory=list)

    def __iter__(self) -> Iterator[Played]:
        """Give every sample that can be read."""
        for part in _parts(self.path):
            yield from _samples(part, _readable(part, _all_of(part)), self.damaged)


def read_tail(path: Path, last_s: float, damaged: list[Where], limit: int = _MOST_TAIL_BYTES) -> list[Played]:
    """Read the samples of a recording's last `last_s` seconds, and at most `limit` bytes for them.

    Only the newest parts are opened, and of each only as much of the end as is left of the limit.
    """
    found: list[Played] = []
    for part in reversed(_parts(path)):
        played = list(_samples(part, _readable(part, _end_of(part, limit)), damaged))
        with suppress(FileNotFoundError):
            limit -= part.stat().st_size
        kept = [each for each in played if _before_s(each, (found or played)[-1]) <= last_s]
        found = kept + found
        if len(kept) < len(played) or limit <= 0:
            break
    return found


def _before_s(earlier: Played, last: Played) -> float:
    """Give the seconds between two samples: by the time of day only where runs differ."""
    if earlier.run == last.run:
        return last.sample.monotonic_s - earlier.sample.monotonic_s
    return (last.sample.taken_utc - earlier.sample.taken_utc).total_seconds()


def _readable(part: Path, lines: Iterator[_Line]) -> Iterator[_Line]:
    """Give the lines of a part; none where the monitor that records has just deleted or compressed it."""
    try:
        yield from lines
    except FileNotFoundError:
        return
    except OSError as problem:
        raise InputError(
            "the recording cannot be read", got=problem.strerror or problem, where=Where(str(part))
        ) from None


def _all_of(part: Path) -> Iterator[_Line]:
    """Give every line of a part; a compressed one that was cut off has those before the cut."""
    if part.suffix != ".gz":
        with part.open("rb") as file:
            yield from _lines(file, 1)
        return
    with gzip.open(part, "rb") as packed:
        try:
            yield from _lines(packed, 1)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            yield None, b"cut off"


def _end_of(part: Path, limit: int) -> Iterator[_Line]:
    """Give the first line of a part and the whole ones among its last `limit` bytes.

    A compressed part cannot be begun at its end; its length is bounded by the recorder.
    """
    if part.suffix == ".gz":
        yield from _all_of(part)
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
    """Give the lines from here on, numbered where it is known which one comes first."""
    while line := file.readline(_MOST_LINE_BYTES):
        yield number, line
        number = None if number is None else number + 1


def _samples(part: Path, lines: Iterator[_Line], damaged: list[Where]) -> Iterator[Played]:
    run = part.name
    for number, line in lines:
        try:
            record = _DECODER.decode(line)
        except _NO_LINE:
            _check_version(part, number, line)
            damaged.append(Where(str(part), number))
            continue
        if isinstance(record, Sample):
            yield Played(run, record)
            continue
        if record.schema_version != SCHEMA_VERSION:
            raise version_error(part, number, record.schema_version)
        run = record.run


def _check_version(part: Path, number: int | None, line: bytes) -> None:
    """Stop at the header of another version, whatever else it holds; a torn line has none."""
    try:
        found = msgspec.json.decode(line, type=_Version)
    except _NO_LINE:
        return
    if found.kind == "header" and found.schema_version != SCHEMA_VERSION:
        raise version_error(part, number, found.schema_version)


def _parts(path: Path) -> list[Path]:
    found = parts(path) if path.is_dir() else [path]
    if not found or not path.exists():
        raise InputError(
            "no recording there",
            got=path,
            allowed="a folder that `libra-plan monitor --out` wrote, or one of its parts",
        )
    return found


class RecordedSource:
    """Plays a recording as if it were live, as fast as it is asked."""

    name = "recorded"
    live = False

    def __init__(self, path: Path) -> None:
        _parts(path)  # a wrong path is told before anything else happens
        self._samples = iter(Playback(path))

    def read(self) -> tuple[Sample, ...] | None:
        """Give the next sample, None after the last."""
        played = next(self._samples, None)
        return None if played is None else (played.sample,)

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""

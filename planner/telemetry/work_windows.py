"""Windows of work: the counts of one data-parallel rank of a role between two times.

Every source of throughput becomes these: lines of our own counters, metrics of trainers and engines
(`readers`). A rate is what was done in a window over the length of the window, never a total over
the time of the last step (A054).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from libra_plan.errors import InputError, Where
from libra_plan.profiles.document import shown

__all__ = ["ClockAxis", "SkippedRecord", "WorkWindow", "believable", "find_recordings", "read_windows"]

SCHEMA_VERSION = 1
ENDING = ".jsonl"
_LONGEST_S = 7 * 86400.0
_MOST = 1e15
_COUNTS = ("tokens", "samples", "episodes", "steps")
_AMOUNTS = (
    *(*_COUNTS, "waiting_s", "staleness", "stalest"),
    *("batch_sequences", "seq_len_tokens", "peak_reserved_mib", "dp_rank", "rank"),
)


class WorkWindow(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename={"end_s": "t_s"}):
    """What one data-parallel rank did from `start_s` to `end_s`, seconds on the clock `clock`.

    Clocks only go forward, and windows of one `clock` compare; `utc_s` is the end in seconds since 1970
    by the wall clock. `source` is the process, `generation` that of its task in the plan that started
    it, where known. Counts are None where they were never taken. `queues` holds the last lengths by
    name and `longest` the largest; `staleness` is in policy versions. `batch_sequences` ×
    `seq_len_tokens` is one step on this rank (decode: sequences at once and their mean context).
    """

    start_s: float | None = None
    end_s: float
    utc_s: float | None = None
    task: str = ""
    role: str
    dp_rank: int = 0
    rank: int = 0
    source: str = ""
    generation: int | None = None
    clock: str = ""
    tokens: float | None = None
    samples: float | None = None
    episodes: float | None = None
    steps: float | None = None
    waiting_s: float | None = None
    queues: dict[str, float] = {}
    longest: dict[str, float] = {}
    staleness: float | None = None
    stalest: float | None = None
    batch_sequences: float | None = None
    seq_len_tokens: float | None = None
    peak_reserved_mib: float | None = None
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    write_errors: int = 0
    schema_version: int = SCHEMA_VERSION

    @property
    def length_s(self) -> float:
        """Length of the window, seconds."""
        return self.end_s - (self.end_s if self.start_s is None else self.start_s)

    @property
    def working_s(self) -> float:
        """Seconds in which the rank did not wait for others."""
        return self.length_s - min(self.waiting_s or 0.0, self.length_s)


class ClockAxis:
    """Puts the clocks of all machines and boots on one axis, seconds since 1970 where they are known.

    A clock is placed by the wall clock of its first window; setting the wall clock later moves nothing.
    """

    def __init__(self) -> None:
        self._offsets: dict[str, float] = {}

    def end_s(self, window: WorkWindow) -> float:
        """Return the end of a window on the axis."""
        clock = window.clock or window.source
        offset = self._offsets.get(clock)
        if offset is None:
            offset = self._offsets[clock] = 0.0 if window.utc_s is None else window.utc_s - window.end_s
        return window.end_s + offset


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A line or window that was left out, with the reason."""

    where: str
    reason: str


def find_recordings(paths: Iterable[Path]) -> list[Path]:
    """List the files: each path itself, or all of a folder that end in .jsonl, by name.

    The parts of GPU recordings (telemetry-*.jsonl) may lie beside them and hold no work.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob(f"*{ENDING}"))
            files += [each for each in inside if each.is_file() and not each.name.startswith("telemetry-")]
        elif path.exists():
            files.append(path)
        else:
            raise InputError("no such recording", way_out="check the path", where=Where(shown(path)))
    if not files:
        raise InputError(
            "nothing was recorded there",
            got=", ".join(shown(path) for path in paths) or "no path",
            allowed=f"files that end in {ENDING}",
            way_out="pass the folder that counters write to",
        )
    return files


def read_windows(
    paths: Sequence[Path], left_out: list[SkippedRecord], *, tail_bytes: int | None = None
) -> Iterator[WorkWindow]:
    """Read windows file by file, in the order of their lines.

    `tail_bytes` reads only the end of each file. Left out are torn lines, windows whose clock went back
    (the process goes on from there) and windows that are not `believable`. The counts of a window
    without length are added to the next of its process. In recordings without `start_s`
    (docs/importing.md) a window begins where the role's line before ended, so their first line only
    starts the clock.
    """
    streams: dict[tuple[str, str, str, int], _Stream] = {}
    decode = msgspec.json.Decoder(WorkWindow).decode
    for path in paths:
        for number, line in _lines(path, tail_bytes):
            where = f"{shown(path)}:{number}"
            try:
                window = decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
                wrong = isinstance(problem, msgspec.ValidationError)
                if line.strip():  # an empty line, as after a torn one, is nothing
                    reason = str(problem) if wrong else "not a whole JSON object: torn"
                    left_out.append(SkippedRecord(where, reason))
                continue
            if window.schema_version != SCHEMA_VERSION:
                raise InputError(
                    "a recording in a format that this version does not know",
                    got=f"schema_version {window.schema_version}",
                    allowed=f"schema_version {SCHEMA_VERSION}",
                    way_out="update libra-plan",
                    where=Where(shown(path), number),
                )
            key = (window.source or str(path), window.task, window.role, window.dp_rank)
            stream = streams.get(key)
            if stream is None:
                stream = streams[key] = _Stream()
            placed = stream.place(window, where, left_out)
            if placed is not None and _is_believable(placed, where, left_out):
                yield placed


def believable(windows: Iterable[WorkWindow], left_out: list[SkippedRecord]) -> Iterator[WorkWindow]:
    """Drop windows longer than a week (a clock was set), and amounts below 0 or above 10¹⁵."""
    for window in windows:
        if _is_believable(window, f"{window.role}, to {window.end_s:g} s", left_out):
            yield window


def _is_believable(window: WorkWindow, where: str, left_out: list[SkippedRecord]) -> bool:
    reason = _unbelievable(window)
    if reason is not None:
        left_out.append(SkippedRecord(where, reason))
    return reason is None


def _unbelievable(window: WorkWindow) -> str | None:
    amounts = {name: getattr(window, name) for name in _AMOUNTS}
    amounts |= {f"queue {name}": length for name, length in window.queues.items()}
    amounts |= {f"longest {name}": length for name, length in window.longest.items()}
    for name, amount in amounts.items():
        if amount is not None and not 0 <= amount <= _MOST:
            return f"{name} is {amount:g}"
    if not 0 < window.length_s <= _LONGEST_S or abs(window.end_s) > _MOST:
        return f"a window of {window.length_s:g} s"
    return None


def _lines(path: Path, tail_bytes: int | None) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            if tail_bytes is not None:
                size = file.seek(0, 2)
                file.seek(max(size - tail_bytes, 0))
                if size > tail_bytes:
                    file.readline()  # most likely cut
            yield from enumerate(file, start=1)
    except OSError as problem:
        raise InputError(
            "the recording cannot be read", got=problem.strerror, where=Where(shown(path))
        ) from None


@dataclass
class _Stream:
    """The state of reading the lines of one process."""

    end_s: float | None = None
    carried: WorkWindow | None = None

    def place(self, window: WorkWindow, where: str, left_out: list[SkippedRecord]) -> WorkWindow | None:
        """Return the window with its start; None where the clock went back or it has no length."""
        if self.end_s is None:
            self.end_s = window.end_s if window.start_s is None else window.start_s
            if window.start_s is None:
                return None
        start_s = self.end_s if window.start_s is None else window.start_s
        latest_s, self.end_s = max(self.end_s, start_s), window.end_s
        if window.end_s < latest_s:
            left_out.append(
                SkippedRecord(where, f"the clock went back, from {latest_s:g} to {window.end_s:g} s")
            )
            self.carried = None
            return None
        if window.start_s is None:
            window = msgspec.structs.replace(window, start_s=start_s)
        if self.carried is not None:
            window, self.carried = _with_counts(window, self.carried), None
        if window.end_s > start_s:
            return window
        self.carried = window
        return None


def _with_counts(window: WorkWindow, earlier: WorkWindow) -> WorkWindow:
    """Add an earlier window's counts."""
    added = {
        name: (getattr(window, name) or 0.0) + count
        for name in _COUNTS
        if (count := getattr(earlier, name)) is not None
    }
    return msgspec.structs.replace(window, **added)

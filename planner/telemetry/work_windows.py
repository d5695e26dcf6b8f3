"""Windows of work: what one data-parallel rank of a role got done between two moments.

Every source of throughput becomes these: lines of our own counters, metrics of trainers and engines
(`readers`). A rate is what was done in a window over the length of the window, never a total over
the time of the last step (A054).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from libra_plan.errors import InputError, Where
from libra_plan.profiles.document import shown

__all__ = ["Axis", "Rejected", "WorkWindow", "believable", "find_recordings", "read_windows"]

SCHEMA_VERSION = 1
ENDING = ".jsonl"
_LONGEST_S = 7 * 86400.0
_MOST = 1e15
_AMOUNTS = (
    *("tokens", "samples", "episodes", "steps", "waiting_s", "staleness", "stalest"),
    *("batch_sequences", "seq_len_tokens", "peak_reserved_mib", "dp_rank", "rank"),
)


class WorkWindow(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename={"end_s": "t_s"}):
    """What one data-parallel rank did from `start_s` to `end_s`, seconds on the clock `clock`.

    Clocks only go forward, and windows of one `clock` compare; `utc_s` is the end in seconds since
    1970 as the wall clock had it. `source` is the process, `generation` that of its task in the plan
    that started it, where known. Counts are None where they were never
    taken. `queues` holds the last lengths by name and `longest` the largest; `staleness` is in
    policy versions. `batch_sequences` × `seq_len_tokens` is one step on this rank (decode: sequences
    at once and their mean context).
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
        """Give how long the window is, seconds."""
        return self.end_s - (self.end_s if self.start_s is None else self.start_s)

    @property
    def working_s(self) -> float:
        """Give the seconds in which the rank did not wait for others."""
        return self.length_s - min(self.waiting_s or 0.0, self.length_s)

    @property
    def tokens_per_s(self) -> float | None:
        """Give tokens/s; None when tokens were not counted or the window has no length."""
        return None if self.tokens is None or self.length_s <= 0 else self.tokens / self.length_s


class Axis:
    """Puts the clocks of all machines and boots on one axis, seconds since 1970 where they say so.

    A clock is placed by the wall clock of its first window; one that is set later moves nothing.
    """

    def __init__(self) -> None:
        self._offsets: dict[str, float] = {}

    def end_s(self, window: WorkWindow) -> float:
        """Give the end of a window on the axis."""
        clock = window.clock or window.source
        offset = self._offsets.get(clock)
        if offset is None:
            offset = self._offsets[clock] = 0.0 if window.utc_s is None else window.utc_s - window.end_s
        return window.end_s + offset


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line or window that was left out, with the reason."""

    where: str
    reason: str


@dataclass
class _Stream:
    """What must be known of a process to go on reading it."""

    end_s: float
    carried: WorkWindow | None = None


@dataclass
class _Reading:
    rejected: list[Rejected]
    streams: dict[tuple[str, str, str, int], _Stream] = field(default_factory=dict)


def find_recordings(paths: Iterable[Path]) -> list[Path]:
    """List the files: each path itself, or all of a folder that end in .jsonl, by name.

    The parts of GPU recordings (telemetry-*.jsonl) may lie beside them and hold no work.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(each for each in path.rglob(f"*{ENDING}") if _of_work(each))
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


def _of_work(path: Path) -> bool:
    return path.is_file() and not path.name.startswith("telemetry-")


def read_windows(
    paths: Sequence[Path], rejected: list[Rejected], *, tail_bytes: int | None = None
) -> Iterator[WorkWindow]:
    """Read windows file by file, in the order of their lines; what is left out goes to `rejected`.

    `tail_bytes` reads only the end of each file. A torn line is left out. A window without length
    lends its counts to the next of its process; one whose clock went back is left out, and the
    process goes on from there; so are windows longer than a week, and amounts below 0 or above 10¹⁵.
    Recordings without `start_s` (docs/importing.md) begin a window
    where the role's line before ended, so that their first line only starts the clock.
    """
    reading = _Reading(rejected)
    decode = msgspec.json.Decoder(WorkWindow).decode
    for path in paths:
        for number, line in _lines(path, tail_bytes):
            try:
                window = decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
                _reject(line, problem, path, number, reading)
                continue
            if window.schema_version != SCHEMA_VERSION:
                raise _unknown_format(window, path, number)
            placed = _placed(window, path, number, reading)
            if placed is not None and _is_believed(placed, f"{shown(path)}:{number}", rejected):
                yield placed


def believable(windows: Iterable[WorkWindow], rejected: list[Rejected]) -> Iterator[WorkWindow]:
    """Leave out windows that cannot be, whoever read them: see `read_windows`."""
    for window in windows:
        if _is_believed(window, f"{window.role}, to {window.end_s:g} s", rejected):
            yield window


def _is_believed(window: WorkWindow, where: str, rejected: list[Rejected]) -> bool:
    """Reject a window longer than a week (its clock was changed), or with an amount below 0 or above 10¹⁵."""
    amounts = {name: getattr(window, name) for name in _AMOUNTS}
    amounts |= {f"queue {name}": length for name, length in window.queues.items()}
    amounts |= {f"longest {name}": length for name, length in window.longest.items()}
    wrong = [name for name, amount in amounts.items() if amount is not None and not 0 <= amount <= _MOST]
    if wrong:
        rejected.append(Rejected(where, f"{wrong[0]} is {amounts[wrong[0]]:g}"))
    elif not 0 < window.length_s <= _LONGEST_S or abs(window.end_s) > _MOST:
        rejected.append(Rejected(where, f"a window of {window.length_s:g} s"))
    return not wrong and 0 < window.length_s <= _LONGEST_S and abs(window.end_s) <= _MOST


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


def _reject(line: bytes, problem: Exception, path: Path, number: int, reading: _Reading) -> None:
    """Note a line that is no window; an empty one, as after a torn line, is nothing."""
    if line.strip():
        wrong = isinstance(problem, msgspec.ValidationError)
        reason = str(problem) if wrong else "not a whole JSON object: torn"
        reading.rejected.append(Rejected(f"{shown(path)}:{number}", reason))


def _unknown_format(window: WorkWindow, path: Path, number: int) -> InputError:
    return InputError(
        "a recording in a format that this version does not know",
        got=f"schema_version {window.schema_version}",
        allowed=f"schema_version {SCHEMA_VERSION}",
        way_out="update libra-plan",
        where=Where(shown(path), number),
    )


def _placed(window: WorkWindow, path: Path, number: int, reading: _Reading) -> WorkWindow | None:
    """Give the window its start, and leave out what cannot be: backwards, or without length."""
    key = (window.source or str(path), window.task, window.role, window.dp_rank)
    stream = reading.streams.get(key)
    if stream is None:
        stream = reading.streams[key] = _Stream(window.end_s)
        if window.start_s is None:
            return None
        stream.end_s = window.start_s
    start_s = stream.end_s if window.start_s is None else window.start_s
    if window.end_s < stream.end_s or window.end_s < start_s:
        said = f"the clock went back, from {max(stream.end_s, start_s):g} to {window.end_s:g} s"
        reading.rejected.append(Rejected(f"{shown(path)}:{number}", said))
        stream.end_s, stream.carried = window.end_s, None
        return None
    stream.end_s = window.end_s
    if window.start_s is None:
        window = msgspec.structs.replace(window, start_s=start_s)
    if stream.carried is not None:
        window, stream.carried = _with_counts(window, stream.carried), None
    if window.end_s > start_s:
        return window
    stream.carried = window
    return None


def _with_counts(window: WorkWindow, earlier: WorkWindow) -> WorkWindow:
    """Add an earlier window's counts."""
    added = {
        name: (getattr(window, name) or 0.0) + count
        for name in ("tokens", "samples", "episodes", "steps")
        if (count := getattr(earlier, name)) is not None
    }
    return msgspec.structs.replace(window, **added)

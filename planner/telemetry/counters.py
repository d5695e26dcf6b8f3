"""Count what a loop gets done, in windows, as JSON lines: one file per process.

    counter = libra_plan.counter("run/telemetry", task="agent-7b", role="actor")
    for batch in loader:
        train(batch)
        counter.add(tokens=batch.tokens, samples=len(batch), steps=1)

Nothing but the standard library is imported. An add costs a few hundred nanoseconds: every thread
adds to totals of its own, without a lock. The first add after the end of a window writes its line. A
loop never fails because of its counter: what cannot be written stays counted and goes into the next
line. docs/throughput.md has the format.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.counter_files import CounterFile

__all__ = ["Counter", "counter"]

_COUNTS = ("tokens", "samples", "episodes", "steps")
_DEGREES = ("tp", "pp", "cp", "ep", "dp")
_closing_pid = 0  # of the process that closes its counters when multiprocessing ends it
_open: weakref.WeakSet[Counter] = weakref.WeakSet()


class Counter:
    """Counts of one process of one role; made with `counter`.

    `clock` returns seconds that only go forward, `utc` seconds since 1970 for the stamps.
    """

    def __init__(
        self,
        file: CounterFile,
        *,
        window_s: float,
        clock: Callable[[], float],
        utc: Callable[[], float],
    ) -> None:
        self._file, self._window_s, self._clock, self._utc = file, window_s, clock, utc
        self._shape: tuple[float, float] | None = None
        self._begin()
        _open.add(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a signal handler may count, too
        self._own = threading.local()
        self._cells: list[tuple[threading.Thread, list[float]]] = []
        self._left: list[float] = [0, 0, 0, 0]  # totals of threads that have ended
        self._written: list[float] = [0, 0, 0, 0]  # totals at the last line
        self._waiters, self._waits_since_s, self._waited_s = 0, 0.0, 0.0
        self._queues: dict[str, float] = {}
        self._longest: dict[str, float] = {}
        self._stale, self._stale_count, self._stalest = 0.0, 0.0, 0.0
        self._peak_mib: float | None = None
        self._closed = False
        self._start_s = self._clock()
        self._due_s = self._start_s + self._window_s

    def __del__(self) -> None:
        """Write what was counted when the loop's last reference goes; closed before, nothing is left."""
        with suppress(AttributeError):  # one that was never made whole
            self.close()

    @property
    def error(self) -> str | None:
        """Why the last line could not be written; None if it was."""
        return self._file.error

    def add(self, tokens: float = 0, samples: float = 0, episodes: float = 0, steps: float = 0) -> None:
        """Add work that this data-parallel rank did since the last add."""
        try:
            cell = self._own.cell
        except AttributeError:
            cell = self._new_cell()
        if tokens:
            cell[0] += tokens if isinstance(tokens, int) else self._number(tokens) or 0
        if samples:
            cell[1] += samples if isinstance(samples, int) else self._number(samples) or 0
        if episodes:
            cell[2] += episodes if isinstance(episodes, int) else self._number(episodes) or 0
        if steps:
            cell[3] += steps if isinstance(steps, int) else self._number(steps) or 0
        if self._clock() >= self._due_s:
            self._flush_when_due()

    def totals(self) -> dict[str, float]:
        """Return all that was counted by this process, by name."""
        with self._lock:
            return dict(zip(_COUNTS, self._sums(), strict=True))

    def queue(self, name: str, length: float) -> None:
        """Note the length of a queue: `experience` buffer, `rollout` or `reward` backlog, or your own."""
        known = self._number(length)
        if known is None:
            return
        with self._lock:
            self._queues[name] = known
            self._longest[name] = max(known, self._longest.get(name, 0.0))

    def staleness(self, versions: float, samples: int = 1) -> None:
        """Note by how many policy versions samples lag when they are trained on."""
        lag, number = self._number(versions), self._number(samples)
        if lag is None or number is None:
            return
        with self._lock:
            self._stale += lag * number
            self._stale_count += number
            self._stalest = max(self._stalest, lag)

    def shape(self, batch_sequences: float, seq_len_tokens: float) -> None:
        """State what one step runs on this rank: sequences and their mean length, tokens.

        For decoding: sequences at once and their mean context. With it a recording can become a
        profile, and tokens are checked against lengths.
        """
        sequences, length = self._number(batch_sequences), self._number(seq_len_tokens)
        with self._lock:
            self._shape = (sequences, length) if sequences and length else None

    def peak_memory(self, reserved_mib: float) -> None:
        """Note the highest memory the allocator held, MiB."""
        peak_mib = self._number(reserved_mib)
        with self._lock:
            known = [each for each in (self._peak_mib, peak_mib) if each is not None]
            self._peak_mib = max(known, default=None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time a wait for another role; waits that overlap count once."""
        with self._lock:
            if self._waiters == 0:
                self._waits_since_s = self._clock()
            self._waiters += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiters -= 1
                if self._waiters == 0:
                    self._waited_s += self._clock() - self._waits_since_s

    def flush(self) -> None:
        """Write what was counted so far, without waiting for the window to end."""
        with self._lock:
            self._flush()

    def close(self) -> None:
        """Write what was counted so far, and close the file; a closed counter may go on."""
        with self._lock:
            if not self._closed or self._sums() != self._written:
                self._flush()
            self._closed = True
            self._file.close()

    def _flush_when_due(self) -> None:
        with self._lock:
            if self._clock() >= self._due_s:  # otherwise another thread has just written the line
                self._flush()

    def _flush(self) -> None:
        now_s = self._clock()
        self._due_s = now_s + self._window_s
        if now_s <= self._start_s:
            return  # a window without length has no rate: its counts go into the next
        if self._waiters:
            self._waited_s += now_s - self._waits_since_s
            self._waits_since_s = now_s
        totals = self._sums()
        line = self._line(now_s, totals)
        if line is None or not self._file.write(line):
            return
        self._written, self._waited_s, self._start_s = totals, 0.0, now_s
        self._longest = {}
        self._stale, self._stale_count, self._stalest = 0.0, 0.0, 0.0
        self._peak_mib = None

    def _line(self, now_s: float, totals: list[float]) -> dict[str, object] | None:
        """Return the line of the window that ends now; None when nothing was ever noted."""
        pairs = zip(_COUNTS, totals, self._written, strict=True)
        line: dict[str, object] = {name: now - then for name, now, then in pairs if now}
        if self._waited_s > 0:
            line["waiting_s"] = round(min(self._waited_s, now_s - self._start_s), 6)
        if self._queues:
            line["queues"], line["longest"] = dict(self._queues), self._longest or dict(self._queues)
        if self._stale_count:
            line["staleness"], line["stalest"] = self._stale / self._stale_count, self._stalest
        if not line:
            return None
        if self._shape is not None:
            line["batch_sequences"], line["seq_len_tokens"] = self._shape
        if self._peak_mib is not None:
            line["peak_reserved_mib"] = self._peak_mib
        stamps = {"start_s": round(self._start_s, 6), "t_s": round(now_s, 6), "utc_s": round(self._utc(), 3)}
        return stamps | line

    def _number(self, value: object) -> float | None:
        """Convert a scalar of any library; None if it is not a finite number ≥ 0."""
        try:
            number = float(value)  # type: ignore[arg-type]
            if 0.0 <= number < math.inf:
                return number
        except (TypeError, ValueError, OverflowError, RuntimeError):
            pass
        self._file.complain(f"{value!r:.80} is no number that counts")
        return None

    def _new_cell(self) -> list[float]:
        _close_when_child_ends()
        cell: list[float] = [0, 0, 0, 0]
        with self._lock:
            self._cells.append((threading.current_thread(), cell))
        self._own.cell = cell
        return cell

    def _sums(self) -> list[float]:
        """Add up the threads' totals; those of threads that ended are kept in one."""
        ended = [cell for thread, cell in self._cells if not thread.is_alive()]
        if ended:
            self._cells = [each for each in self._cells if not any(each[1] is cell for cell in ended)]
            self._left = [sum(parts) for parts in zip(self._left, *ended, strict=True)]
        return [sum(parts) for parts in zip(self._left, *(cell for _, cell in self._cells), strict=True)]


def counter(
    folder: str | os.PathLike[str],
    *,
    task: str | None = None,
    role: str | None = None,
    dp_rank: int | None = None,
    rank: int | None = None,
    layout: Mapping[str, int] | None = None,
    generation: int | None = None,
    window_s: float = 10.0,
    file_mib: float = 64.0,
    keep_files: int = 8,
    clock: Callable[[], float] = time.monotonic,
    utc: Callable[[], float] = time.time,  # noqa: TID251 - this is the clock argument
    environment: Mapping[str, str] | None = None,
) -> Counter:
    """Return the counter of this process, which writes to a file of its own.

    Every process may count: of those that hold one data-parallel rank the readers use one.

    Parameters
    ----------
    folder
        Folder of the files.
    task, role, dp_rank, rank, layout, generation
        Whose work is counted; `layout` are parallel degrees such as {"tp": 2}. Default: the launcher's
        environment (LIBRA_PLAN_TASK, LIBRA_PLAN_ROLE, RANK, LIBRA_PLAN_TP, LIBRA_PLAN_GENERATION, …).
    window_s
        Seconds from one line to the next.
    file_mib, keep_files
        The size to which a file grows, and how many files of a process are kept.
    clock, utc, environment
        The monotonic clock, the time of day and the environment, for tests.

    Returns
    -------
    Counter
        Its `add`, `waiting`, `queue`, `staleness`, `shape` and `peak_memory` note what the loop does.

    Raises
    ------
    InputError
        Task or role are not known, or the window has no length.

    Examples
    --------
    >>> import libra_plan as lp
    >>> counter = lp.counter("telemetry", task="agent", role="actor")
    >>> counter.add(tokens=4096, samples=8, steps=1)
    >>> counter.totals()["tokens"]
    4096
    """
    known = os.environ if environment is None else environment
    task = task or known.get("LIBRA_PLAN_TASK")
    role = role or known.get("LIBRA_PLAN_ROLE")
    if not task or not role:
        raise InputError(
            "a counter needs to know whose work it counts",
            got=f"task {task}, role {role}",
            way_out="pass task= and role= as in workload.yaml, or start the role with a launcher of ours",
        )
    if not window_s > 0:
        raise InputError("a window has a length", got=f"window_s={window_s}", allowed="above 0 s")
    degrees = {name: value for name in _DEGREES if (value := _degree(layout, known, name)) is not None}
    own = _whole(known.get("RANK")) or 0 if rank is None else rank
    group = _dp_rank(own, degrees, _whole(known.get("WORLD_SIZE"))) if dp_rank is None else dp_rank
    identity = {"task": task, "role": role, "dp_rank": group, "rank": own, **degrees}
    if generation is None:
        generation = _whole(known.get("LIBRA_PLAN_GENERATION"))
    if generation is not None:
        identity["generation"] = generation
    file = CounterFile(os.fspath(folder), identity, int(file_mib * 2**20), keep_files)
    return Counter(file, window_s=window_s, clock=clock, utc=utc)


def _degree(layout: Mapping[str, int] | None, known: Mapping[str, str], name: str) -> int | None:
    if layout is not None:
        return layout.get(name)
    return _whole(known.get(f"LIBRA_PLAN_{name.upper()}"))


def _dp_rank(rank: int, degrees: Mapping[str, int], world: int | None) -> int:
    """Return the data-parallel rank where ranks go tp, cp, dp, pp, the innermost first.

    That is the order of Megatron-LM and DeepSpeed; without pipeline stages it is that of all.
    """
    stages = degrees.get("pp", 1)
    inside = rank % (world // stages) if stages > 1 and world else rank
    return inside // (degrees.get("tp", 1) * degrees.get("cp", 1))


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


@atexit.register
def _close_all() -> None:
    for each in list(_open):
        each.close()


def _close_when_child_ends() -> None:
    """Make multiprocessing call `_close_all` at the end of a child, where `atexit` does not run."""
    global _closing_pid  # noqa: PLW0603 - one for each process
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _closing_pid != os.getpid():
        _closing_pid = os.getpid()
        util.Finalize(None, _close_all, exitpriority=0)


def _forked() -> None:
    """Start from zero in a forked process: counts and file belong to the parent."""
    for each in list(_open):
        each._file.forked()
        each._begin()


os.register_at_fork(after_in_child=_forked)

"""The loop of `monitor`: one look per interval, whose samples go to every taker."""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import msgspec

from libra_plan.errors import writing
from libra_plan.notes import Notes, log_note
from libra_plan.planner.telemetry.recording import SCHEMA_VERSION, Header, Recorder, Retention
from libra_plan.planner.telemetry.sample import NodeSample
from libra_plan.planner.telemetry.sources import Clocks, SampleSource, SourceTimeouts, open_source
from libra_plan.profiles.counting import counted

__all__ = ["ClockWatch", "Taker", "Wait", "look_until", "monitor"]

Taker = Callable[[Sequence[NodeSample]], object]
Wait = Callable[[float], bool]  # waits so many seconds and returns whether it is time to end

_JUMP_S = 2.0
_CLOCKS = Clocks(time.time, time.monotonic)  # noqa: TID251 - the default of the clock argument


def monitor(
    source: str = "auto",
    *,
    interval_s: float = 1.0,
    for_s: float | None = None,
    out: Path | str | None = None,
    keep_mib: float = 1024.0,
    keep_days: float = 7.0,
    prometheus: str | None = None,
    takers: Sequence[Taker] = (),
    notes: Notes = log_note,
    clocks: Clocks = _CLOCKS,
) -> int:
    """Sample GPUs and hosts once per interval, and record the samples.

    In the main thread SIGINT and SIGTERM end it cleanly.

    Parameters
    ----------
    source
        `auto`, `nvml`, `smi`, `simulated`, `simulated:N`, a recording, or the URL of a DCGM exporter's
        page or of a Prometheus.
    interval_s
        Seconds from one look to the next.
    for_s
        End after so many seconds; None: when the source ends or a signal asks for it.
    out
        Folder to record into.
    keep_mib, keep_days
        The size and the age up to which the recording is kept.
    prometheus
        `PORT` or `HOST:PORT` to serve the newest sample on as metrics.
    takers
        Functions that receive the samples of each look.
    notes
        Receives sentences about the recording, the metrics and the number of looks.
    clocks
        The time of day and the monotonic clock.

    Returns
    -------
    int
        The number of looks.

    Raises
    ------
    InputError
        The source, the folder or the address cannot be used.
    LockedError
        Another monitor records into the folder.

    Examples
    --------
    >>> import libra_plan as lp
    >>> lp.monitor("simulated:8", for_s=0.0)
    1
    """
    address = None
    if prometheus is not None:
        from libra_plan.planner.telemetry.exposition import Exposition, parse_address

        address = parse_address(prometheus)
    all_takers: list[Taker] = []
    with ExitStack() as held:
        wait = held.enter_context(_stop_signals())
        timeouts = SourceTimeouts(look_s=min(max(interval_s / 2, 0.25), 2.0))
        opened = open_source(source, clocks, timeouts)
        held.callback(opened.close)
        if address is not None:
            exposition = Exposition(address)
            held.callback(exposition.close)
            notes(f"metrics: http://{address[0]}:{exposition.port}/metrics")
            all_takers.append(exposition.show)
        if out is not None:
            retention = Retention(keep_mib=keep_mib, keep_s=keep_days * 86400)
            recorder = _recorder(Path(out), opened.name, interval_s, clocks, retention, notes)
            held.callback(recorder.close)
            all_takers.append(recorder.write_all)
        looks = look_until(opened, [*all_takers, *takers], interval_s, for_s, wait, clocks)
    notes(
        counted(looks, "look")
        + ("" if out is None else f", recorded in {os.fsencode(out).decode(errors='replace')}")
    )
    return looks


def _recorder(
    out: Path,
    source: str,
    interval_s: float,
    clocks: Clocks,
    retention: Retention,
    notes: Notes,
) -> Recorder:
    began = clocks.stamp()
    header = Header(
        schema_version=SCHEMA_VERSION,
        node=socket.gethostname(),
        source=source,
        run=f"{began.isoformat()}/{os.getpid()}",
        began_utc=began,
        interval_s=interval_s,
    )
    with writing(out):
        return Recorder(out, header, clocks, lambda text: notes(f"warning: {text}"), retention)


def look_until(
    source: SampleSource,
    takers: Sequence[Taker],
    interval_s: float,
    for_s: float | None,
    wait: Wait,
    clocks: Clocks,
) -> int:
    """Sample until the source ends, `for_s` seconds are over or `wait` returns True; count the looks.

    Looks lie on a grid of `interval_s`; one that took longer costs the looks it ran over, and they are
    not made up for in a burst. A source that is not live is read as fast as it can be.
    """
    watch = ClockWatch(clocks)
    begin_s = clocks.monotonic_s()
    looks = place = 0
    while (samples := source.read()) is not None:
        looks += 1
        jump = watch.jump() if source.live else None
        if jump is not None:
            samples = tuple(msgspec.structs.replace(each, faults=(*each.faults, jump)) for each in samples)
        for take in takers:
            take(samples)
        left_s = 0.0
        if source.live:
            passed_s = clocks.monotonic_s() - begin_s
            place = max(place + 1, math.ceil(passed_s / interval_s))
            left_s = max(0.0, place * interval_s - passed_s)
            if for_s is not None and place * interval_s > for_s:
                break
        if wait(left_s):
            break
    return looks


class ClockWatch:
    """Notices that the time of day jumped against the monotonic clock."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._offset_s = self._now()

    def jump(self) -> str | None:
        """Return a sentence when the clock has jumped since the last call."""
        offset_s = self._now()
        by_s, self._offset_s = offset_s - self._offset_s, offset_s
        return None if abs(by_s) < _JUMP_S else f"the clock jumped by {by_s:+.1f} s"

    def _now(self) -> float:
        return self._clocks.utc_s() - self._clocks.monotonic_s()


@contextmanager
def _stop_signals() -> Iterator[Wait]:
    """Yield a function that waits, and returns whether SIGINT or SIGTERM asked to end.

    The second SIGINT ends at once. A pipe wakes the wait up even where the signal came just before it.
    """
    reading, waking = os.pipe()
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        os.write(waking, b"x")

    main = threading.current_thread() is threading.main_thread()
    numbers = [signal.SIGINT, signal.SIGTERM] if main else []
    before = {
        number: signal.signal(number, ask)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield lambda seconds: bool(select.select([reading], [], [], seconds)[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(waking)

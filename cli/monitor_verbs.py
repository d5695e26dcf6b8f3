"""`monitor` and `summary`: look at GPUs and hosts, record, and sum recordings up."""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import monitor_tables, render
from libra_plan.cli.errors import printable, writing
from libra_plan.cli.flags import Form, FormOption
from libra_plan.errors import InputError, Where
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from libra_plan.planner.telemetry.monitor import Taker
    from libra_plan.planner.telemetry.recording import Retention
    from libra_plan.planner.telemetry.sample import Sample
    from libra_plan.planner.telemetry.sources import Clocks

__all__ = ["register"]

_MONITOR = (
    "Look at the GPUs and the host once an interval: load, memory, power, traffic, processes.\n\n"
    "Example: libra-plan monitor --out telemetry/ --prometheus 9401\n\n"
    "What cannot be read is unknown (`?`, null), never 0. A GPU that hangs or is lost removes only itself. "
    "--source is nvml, smi (nvidia-smi), simulated, a recording, or the URL of a DCGM exporter's page or of "
    "a Prometheus. Ctrl-C ends it cleanly."
)
_SUMMARY = (
    "Sum a recording up: mean, peak and percentiles of every reading in each window.\n\n"
    "Example: libra-plan summary telemetry/ --window 600\n\n"
    "A window is laid by monotonic seconds, so clock changes and gaps move no sample. With --last only the "
    "end of the recording is read."
)


class MonitorForm(str, Enum):
    """How samples are written as they are taken."""

    TABLE = "table"
    JSON = "json"
    NONE = "none"


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(help=_MONITOR)(monitor)
    app.command(help=_SUMMARY)(summary)


def monitor(
    interval: Annotated[float, typer.Option(help="Seconds from one look to the next.", min=0.05)] = 1.0,
    for_s: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", help="End after so many seconds.", min=0.0)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to record into.")] = None,
    keep_mib: Annotated[float, typer.Option(help="Most that is kept of the recording, MiB.", min=1.0)] = 1024,
    keep_days: Annotated[float, typer.Option(help="Oldest that is kept of the recording.", min=0.0)] = 7.0,
    form: Annotated[
        MonitorForm, typer.Option("--format", help="table; json, a line a sample; none, as for a service.")
    ] = MonitorForm.TABLE,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Serve metrics there; without a host to this machine alone."
        ),
    ] = None,
    source: Annotated[str, typer.Option(help="auto, nvml, smi, simulated, a recording, or a URL.")] = "auto",
) -> None:
    """Look, and hand every sample to who wants it."""
    from libra_plan.planner.telemetry.choosing import source_of
    from libra_plan.planner.telemetry.exposition import parse_address
    from libra_plan.planner.telemetry.monitor import run
    from libra_plan.planner.telemetry.recording import Retention
    from libra_plan.planner.telemetry.sources import Clocks, Limits

    clocks = Clocks(time.time, time.monotonic)  # noqa: TID251 - here the clock argument begins
    address = None if prometheus is None else parse_address(prometheus)
    with ExitStack() as held:
        ending = held.enter_context(_Ending())
        looker = source_of(source, clocks, Limits(look_s=min(max(interval / 2, 0.25), 2.0)))
        held.callback(looker.close)
        takers: list[Taker] = []
        if address is not None:
            takers.append(_serve(address, held))
        if out is not None:
            retention = Retention(keep_mib=keep_mib, keep_s=keep_days * 86400)
            takers.append(_record(out, looker.name, interval, clocks, retention, held))
        if form is not MonitorForm.NONE:
            takers.append(monitor_tables.writer(form is MonitorForm.JSON))
        looks = run(looker, takers, interval, for_s, ending.wait, clocks)
    render.note(f"{counted(looks, 'look')}" + ("" if out is None else f", recorded in {printable(out)}"))


def summary(
    recording: Annotated[
        Path, typer.Argument(help="Folder that `monitor --out` wrote, or one of its parts.")
    ],
    window: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Length of a window; default: everything in one.")
    ] = None,
    last: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Only the end of the recording.", min=0.0)
    ] = None,
    form: FormOption = Form.TABLE,
) -> None:
    """Sum up and print."""
    from libra_plan.planner.telemetry.reader import Playback, Played, read_tail
    from libra_plan.planner.telemetry.window import windows

    damaged: list[Where] = []
    played: Iterable[Played] = Playback(recording, damaged)
    if last is not None:
        played = read_tail(recording, last, damaged)
    found = list(windows(played, math.inf if window is None else window))
    for where in damaged:
        _warn(f"{where}: not a whole line, left out")
    if not found:
        raise InputError("the recording holds no sample", got=printable(recording))
    if form is Form.TABLE:
        monitor_tables.print_windows(found)
    else:
        render.print_data(render.as_data(found), form.value)


def _serve(address: tuple[str, int], held: ExitStack) -> Taker:
    from libra_plan.planner.telemetry.exposition import Exposition

    exposition = Exposition(address)
    held.callback(exposition.close)
    render.note(f"metrics: http://{address[0]}:{exposition.port}/metrics")
    return exposition.show


def _record(
    out: Path, source: str, interval_s: float, clocks: Clocks, retention: Retention, held: ExitStack
) -> Taker:
    import socket

    from libra_plan.planner.telemetry.recording import SCHEMA_VERSION, Header, Recorder

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
        recorder = Recorder(out, header, clocks, _warn, retention)
    held.callback(recorder.close)

    def take(samples: Sequence[Sample]) -> None:
        for sample in samples:
            recorder.write(sample)

    return take


def _warn(text: str) -> None:
    render.note(f"warning: {text}")


class _Ending:
    """Waits until it is time, or until SIGINT or SIGTERM says to end; the second SIGINT ends at once."""

    def __init__(self) -> None:
        self._hear, self._say = os.pipe()
        self._before: dict[int, object] = {}
        self._told = False

    def __enter__(self) -> _Ending:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._hear)
        os.close(self._say)

    def wait(self, seconds: float) -> bool:
        """Wait; True when it is time to end."""
        # a pipe wakes up even where the signal came just before the wait
        return bool(select.select([self._hear], [], [], seconds)[0])

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self._told:
            raise KeyboardInterrupt
        self._told = True
        os.write(self._say, b"x")

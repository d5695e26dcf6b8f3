"""Summarise samples by windows of time: mean, peak and percentiles of every reading, and the GPUs' users."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from libra_plan.errors import InputError, Where
from libra_plan.notes import Notes, log_note
from libra_plan.planner.telemetry.recording import RecordedSample, RecordingReader, read_tail
from libra_plan.planner.telemetry.sample import (
    HOST_READINGS,
    READINGS,
    GpuSample,
    GpuState,
    NodeSample,
    main_process_memory_mib,
)
from libra_plan.profiles.document import shown

__all__ = [
    "GpuWindow",
    "NodeWindow",
    "ProcessPeak",
    "ReadingSummary",
    "main_process_memory_by_window",
    "node_windows",
    "summarise_recording",
    "summary_of",
]


@dataclass(frozen=True, slots=True)
class ReadingSummary:
    """The values of a reading over a window, from the `count` samples in which it was known."""

    count: int
    mean: float
    peak: float
    low: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class ProcessPeak:
    """A process and the most GPU memory it was seen to hold; a reused pid is another process."""

    pid: int
    started_utc: datetime | None
    name: str | None
    peak_used_mib: float | None


@dataclass(frozen=True, slots=True)
class GpuWindow:
    """One GPU in one window. A reading that was never known is left out; `states` counts samples.

    `ecc_uncorrected` is the number of errors added; None: the counter was not known twice.
    """

    uuid: str | None
    index: int | None
    states: dict[str, int]
    readings: dict[str, ReadingSummary]
    processes: tuple[ProcessPeak, ...]
    xids: tuple[int, ...]
    ecc_uncorrected: int | None


@dataclass(frozen=True, slots=True)
class NodeWindow:
    """One node over `length_s` seconds from `began_utc` on: its host and its GPUs.

    `length_s` runs from the first to the last sample, so one sample makes a window of no length.
    """

    node: str
    began_utc: datetime
    length_s: float
    samples: int
    host: dict[str, ReadingSummary]
    gpus: tuple[GpuWindow, ...]
    faults: tuple[str, ...]


def summarise_recording(
    recording: Path | str,
    *,
    window_s: float | None = None,
    last_s: float | None = None,
    notes: Notes = log_note,
) -> list[NodeWindow]:
    """Sum up what `monitor` recorded.

    Parameters
    ----------
    recording
        The folder of the recording, or one of its parts.
    window_s
        Length of a window in seconds; None: everything in one window.
    last_s
        Only the last seconds of the recording; the rest is not read.
    notes
        Receives a sentence for each line that could not be read.

    Returns
    -------
    list[NodeWindow]
        The windows of each node in order. A reading that was never known is left out of them.

    Raises
    ------
    InputError
        There is no recording, it holds no sample, or the window has no length.

    Examples
    --------
    >>> import libra_plan as lp
    >>> looks = lp.monitor("simulated:8", for_s=0.0, out="telemetry")
    >>> (window,) = lp.summarise_recording("telemetry")
    >>> window.samples, len(window.gpus), window.gpus[0].readings["memory_total_mib"].mean
    (1, 8, 143771.0)
    """
    path, damaged = Path(recording), list[Where]()
    played = RecordingReader(path, damaged) if last_s is None else read_tail(path, last_s, damaged)
    found = list(node_windows(played, math.inf if window_s is None else window_s))
    for where in damaged:
        notes(f"warning: {where}: not a whole line, left out")
    if not found:
        raise InputError("the recording holds no sample", got=shown(path))
    return found


def node_windows(played: Iterable[RecordedSample], window_s: float) -> Iterator[NodeWindow]:
    """Cut samples into windows of `window_s` seconds per node and sum each up.

    Windows start from each run's first sample by monotonic seconds, so that neither a clock that jumps
    nor a gap of any length moves or loses a sample. Of open windows the values are kept in memory,
    eight bytes each.
    """
    if not window_s > 0:
        raise InputError(
            "a window needs a length",
            got=f"{window_s:g} s",
            allowed="more than 0 s",
            way_out="leave window_s (--window) out for one window over everything",
        )
    return _cut(played, window_s)


def main_process_memory_by_window(played: Iterable[RecordedSample], window_s: float) -> Iterator[float]:
    """Yield for each window the least memory, MiB, that the main process of any GPU could have had.

    Windows are laid by each node's monotonic seconds; one in which it is unknown is left out.
    """
    least: dict[tuple[str, str, int], float] = {}
    for each in played:
        sample = each.sample
        key = (each.run, sample.node, int(sample.monotonic_s // window_s))
        for gpu in sample.gpus:
            memory_mib = main_process_memory_mib(gpu)
            if memory_mib is not None:
                least[key] = min(least.get(key, math.inf), memory_mib)
    yield from least.values()


def summary_of(values: Sequence[float] | NDArray[np.float64]) -> ReadingSummary:
    """Sum up at least one value; percentiles are interpolated linearly between neighbours."""
    known = np.sort(np.asarray(values, dtype=np.float64))
    p50, p95, p99 = np.percentile(known, (50.0, 95.0, 99.0)).tolist()
    return ReadingSummary(
        count=len(known),
        mean=math.fsum((known / len(known)).tolist()),  # a sum may be too large for a float
        peak=float(known[-1]),
        low=float(known[0]),
        p50=p50,
        p95=p95,
        p99=p99,
    )


def _cut(played: Iterable[RecordedSample], window_s: float) -> Iterator[NodeWindow]:
    began: dict[tuple[str, str], float] = {}
    open_: dict[str, _Node] = {}
    for each in played:
        sample = each.sample
        begin_s = began.setdefault((each.run, sample.node), sample.monotonic_s)
        place = 0 if math.isinf(window_s) else math.floor((sample.monotonic_s - begin_s) / window_s)
        key = each.run, place
        if sample.node in open_ and open_[sample.node].key != key:
            yield open_.pop(sample.node).summary()
        if sample.node not in open_:
            open_[sample.node] = _Node(key, sample)
        open_[sample.node].add(sample)
    for node in open_.values():
        yield node.summary()


class _Values:
    """The values of each reading: eight bytes a value, NaN where it is not known."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._read = attrgetter(*names)
        self._rows = array("d")

    def add(self, sample: object) -> None:
        self._rows.extend([math.nan if value is None else value for value in self._read(sample)])

    def summary(self) -> dict[str, ReadingSummary]:
        columns = np.array(self._rows).reshape(-1, len(self._names)).T
        known = (column[~np.isnan(column)] for column in columns)
        return {name: summary_of(each) for name, each in zip(self._names, known, strict=True) if len(each)}


@dataclass
class _Gpu:
    """One GPU in an open window."""

    uuid: str | None
    index: int | None
    values: _Values = field(default_factory=lambda: _Values(READINGS))
    states: Counter[str] = field(default_factory=Counter)
    processes: dict[tuple[int, datetime | None], ProcessPeak] = field(default_factory=dict)
    xids: list[int] = field(default_factory=list)
    ecc: int | None = None
    ecc_added: int | None = None

    def add(self, gpu: GpuSample) -> None:
        self.values.add(gpu)
        self.states[gpu.state.value] += 1
        self.xids.extend(gpu.xids or ())
        if gpu.details is None:
            return
        for each in gpu.details.processes or ():
            key, peak = (each.pid, each.started_utc), each.used_mib
            before = self.processes.get(key)
            if before is not None and before.peak_used_mib is not None:
                peak = max(before.peak_used_mib, peak or 0.0)
            self.processes[key] = ProcessPeak(*key, each.name, peak)
        now = gpu.details.ecc_uncorrected
        if now is not None and self.ecc is not None:  # a counter that fell was reset
            self.ecc_added = (self.ecc_added or 0) + max(0, now - self.ecc)
        self.ecc = self.ecc if now is None else now

    def summary(self) -> GpuWindow:
        return GpuWindow(
            uuid=self.uuid,
            index=self.index,
            states=dict(self.states),
            readings=self.values.summary(),
            processes=tuple(self.processes.values()),
            xids=tuple(self.xids),
            ecc_uncorrected=self.ecc_added,
        )


class _Node:
    """A window of one node that is still open."""

    def __init__(self, key: tuple[str, int], first: NodeSample) -> None:
        self.key = key
        self._first = self._last = first
        self._samples = 0
        self._host = _Values(HOST_READINGS)
        self._gpus: dict[object, _Gpu] = {}
        self._faults: dict[str, None] = {}

    def add(self, sample: NodeSample) -> None:
        self._last = sample
        self._samples += 1
        self._faults.update(dict.fromkeys(sample.faults))
        if sample.host is not None:
            self._host.add(sample.host)
        for gpu in sample.gpus:
            shared = gpu.uuid is None or gpu.state is GpuState.DUPLICATE
            key = (gpu.uuid, gpu.index) if shared else gpu.uuid
            self._gpus.setdefault(key, _Gpu(gpu.uuid, gpu.index)).add(gpu)

    def summary(self) -> NodeWindow:
        return NodeWindow(
            node=self._first.node,
            began_utc=self._first.taken_utc,
            length_s=round(max(0.0, self._last.monotonic_s - self._first.monotonic_s), 3),
            samples=self._samples,
            host=self._host.summary(),
            gpus=tuple(gpu.summary() for gpu in self._gpus.values()),
            faults=tuple(self._faults),
        )

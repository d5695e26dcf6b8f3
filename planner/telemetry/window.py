"""Sum samples up in windows of time: mean, peak and percentiles of every reading, and who used the GPUs."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.reader import Played
from libra_plan.planner.telemetry.sample import (
    HOST_READINGS,
    READINGS,
    GpuSample,
    GpuState,
    ProcessUse,
    Sample,
)

__all__ = ["GpuWindow", "NodeWindow", "ProcessPeak", "Summary", "percentile", "summarise", "windows"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a reading was over a window, of the `count` samples in which it was known."""

    count: int
    mean: float
    peak: float
    low: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class ProcessPeak:
    """A process and the most GPU memory it was seen to hold; a pid used again is another process."""

    pid: int
    started_utc: datetime | None
    name: str | None
    peak_used_mib: float | None


@dataclass(frozen=True, slots=True)
class GpuWindow:
    """One GPU in one window. A reading that was never known is left out; `states` counts samples.

    `ecc_uncorrected` is how many errors were added; None: the counter was not known twice.
    """

    uuid: str | None
    index: int | None
    states: dict[str, int]
    readings: dict[str, Summary]
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
    host: dict[str, Summary]
    gpus: tuple[GpuWindow, ...]
    faults: tuple[str, ...]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Interpolate linearly between the nearest two of sorted values; `share` in 0 to 1."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(values: Sequence[float]) -> Summary:
    """Sum up at least one value."""
    ordered = sorted(values)
    return Summary(
        count=len(ordered),
        mean=math.fsum(value / len(ordered) for value in ordered),  # a sum may be too large
        peak=ordered[-1],
        low=ordered[0],
        p50=percentile(ordered, 0.5),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
    )


def windows(played: Iterable[Played], window_s: float) -> Iterator[NodeWindow]:
    """Cut samples into windows of `window_s` seconds per node and sum each up.

    Windows are laid by monotonic seconds from each run's first sample, so neither a clock that jumps
    nor a gap of any length moves or loses a sample. Of open windows the values are kept in memory,
    eight bytes each.
    """
    if not window_s > 0:
        raise InputError(
            "a window needs a length",
            got=f"{window_s:g} s",
            allowed="more than 0 s",
            way_out="leave --window out for one window over everything",
        )
    return _cut(played, window_s)


def _cut(played: Iterable[Played], window_s: float) -> Iterator[NodeWindow]:
    began: dict[tuple[str, str], float] = {}
    open_: dict[str, _Node] = {}
    for each in played:
        sample = each.sample
        begin_s = began.setdefault((each.run, sample.node), sample.monotonic_s)
        place = 0 if math.isinf(window_s) else math.floor((sample.monotonic_s - begin_s) / window_s)
        key = each.run, place
        if sample.node in open_ and open_[sample.node].key != key:
            yield open_.pop(sample.node).sum_up()
        if sample.node not in open_:
            open_[sample.node] = _Node(key, sample)
        open_[sample.node].add(sample)
    for node in open_.values():
        yield node.sum_up()


@dataclass
class _Values:
    """The known values of each reading: eight bytes a value, whatever the sample weighed."""

    names: Sequence[str]
    known: dict[str, array[float]] = field(default_factory=dict)

    def add(self, sample: object) -> None:
        for name in self.names:
            value = getattr(sample, name)
            if value is not None:
                self.known.setdefault(name, array("d")).append(value)

    def sum_up(self) -> dict[str, Summary]:
        return {name: summarise(self.known[name]) for name in self.names if name in self.known}


@dataclass
class _Gpu:
    """What a window has seen of one GPU."""

    uuid: str | None
    index: int | None
    values: _Values = field(default_factory=lambda: _Values(READINGS))
    states: dict[str, int] = field(default_factory=dict)
    processes: dict[tuple[int, datetime | None], ProcessPeak] = field(default_factory=dict)
    xids: list[int] = field(default_factory=list)
    ecc: int | None = None
    ecc_added: int | None = None

    def add(self, gpu: GpuSample) -> None:
        self.values.add(gpu)
        self.states[gpu.state.value] = self.states.get(gpu.state.value, 0) + 1
        self.xids.extend(gpu.xids or ())
        if gpu.details is None:
            return
        for each in gpu.details.processes or ():
            self._hold(each)
        now = gpu.details.ecc_uncorrected
        if now is not None and self.ecc is not None:  # where it fell it began anew
            self.ecc_added = (self.ecc_added or 0) + max(0, now - self.ecc)
        self.ecc = self.ecc if now is None else now

    def _hold(self, each: ProcessUse) -> None:
        key = each.pid, each.started_utc
        before = self.processes.get(key)
        peak = each.used_mib
        if before is not None and before.peak_used_mib is not None:
            peak = max(before.peak_used_mib, peak or 0.0)
        self.processes[key] = ProcessPeak(*key, each.name, peak)

    def sum_up(self) -> GpuWindow:
        return GpuWindow(
            uuid=self.uuid,
            index=self.index,
            states=self.states,
            readings=self.values.sum_up(),
            processes=tuple(self.processes.values()),
            xids=tuple(self.xids),
            ecc_uncorrected=self.ecc_added,
        )


class _Node:
    """A window of one node that is still open."""

    def __init__(self, key: tuple[str, int], first: Sample) -> None:
        self.key = key
        self._first = first
        self._last = first
        self._samples = 0
        self._host = _Values(HOST_READINGS)
        self._gpus: dict[object, _Gpu] = {}
        self._faults: dict[str, None] = {}

    def add(self, sample: Sample) -> None:
        self._last = sample
        self._samples += 1
        self._faults.update(dict.fromkeys(sample.faults))
        if sample.host is not None:
            self._host.add(sample.host)
        for gpu in sample.gpus:
            shared = gpu.uuid is None or gpu.state is GpuState.DUPLICATE
            key = (gpu.uuid, gpu.index) if shared else gpu.uuid
            self._gpus.setdefault(key, _Gpu(gpu.uuid, gpu.index)).add(gpu)

    def sum_up(self) -> NodeWindow:
        return NodeWindow(
            node=self._first.node,
            began_utc=self._first.taken_utc,
            length_s=round(max(0.0, self._last.monotonic_s - self._first.monotonic_s), 3),
            samples=self._samples,
            host=self._host.sum_up(),
            gpus=tuple(gpu.sum_up() for gpu in self._gpus.values()),
            faults=tuple(self._faults),
        )

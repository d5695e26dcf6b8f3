"""Reduce samples of GPUs and hosts to tracks, in one pass: memory grows with windows, not samples."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Floats, GpuTrack, HostTrack
from libra_plan.planner.telemetry.recording import RecordedSample
from libra_plan.planner.telemetry.sample import NodeSample

__all__ = ["SampleFold"]

_NAN = math.nan
_MOST_ROWS = 1024  # of a device's samples that wait to be reduced
_NETWORK = ("network_tx_bytes_per_s", "network_rx_bytes_per_s")
_HOST = ("cpu_percent", "memory_free_mib", "memory_total_mib")
_GPU = (
    *("utilization_percent", "power_w", "memory_used_mib", "memory_total_mib", "memory_reserved_mib"),
    *("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
)
_host_values, _gpu_values, _network_values = attrgetter(*_HOST), attrgetter(*_GPU), attrgetter(*_NETWORK)

_Begins = NDArray[np.intp]
"""Where the windows begin in columns of samples."""


class _Device:
    """A GPU or host: samples that wait to be reduced, and the windows of those before."""

    def __init__(self, reduce: Callable[[Floats, _Begins], tuple[Floats, ...]]) -> None:
        self._reduce = reduce
        self._rows = array("d")
        self._count, self._last_s = 0, _NAN
        self._windows: list[tuple[Floats, ...]] = []
        self.power_limit_w = _NAN

    def add(self, start_s: float, seconds: float, values: Iterable[float | None]) -> None:
        """Add a sample of the window that begins at `start_s`."""
        if self._count >= _MOST_ROWS and self._last_s != start_s:
            self._flush()
        self._count, self._last_s = self._count + 1, start_s
        self._rows.extend((start_s, seconds, *[_NAN if value is None else value for value in values]))

    def _flush(self) -> None:
        columns = np.array(self._rows).reshape(self._count, -1).T
        begins = np.flatnonzero(np.diff(columns[0], prepend=_NAN) != 0)
        self._windows.append(self._reduce(columns, begins))
        self._rows, self._count = array("d"), 0

    def columns(self) -> tuple[Floats, ...]:
        """Return read-only columns of windows in the order of time."""
        self._flush()
        joined = [np.concatenate(parts) for parts in zip(*self._windows, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        found = tuple(column[order] for column in joined)
        for column in found:
            column.setflags(write=False)
        return found


class SampleFold:
    """Takes samples of any number of nodes, each node's in order, and returns tracks.

    A sample stands for the time since the one before it of its run, unless that was longer than
    `gap_s`: a first sample, and one after a gap, cover no time. A run is placed on the axis by the wall
    clock of its first sample; setting the wall clock later moves nothing.
    """

    def __init__(self, limits: Thresholds) -> None:
        self._limits = limits
        self._clocks: dict[tuple[str, str], tuple[float, float]] = {}
        self._hosts: dict[str, _Device] = {}
        self._gpus: dict[tuple[str, str | None, int | None], _Device] = {}

    def add_all(self, played: Iterable[RecordedSample]) -> None:
        """Add the samples of a recording."""
        for each in played:
            self.add(each.run, each.sample)

    def add(self, run: str, sample: NodeSample) -> None:
        """Add a sample."""
        limits, key = self._limits, (run, sample.node)
        offset, before_s = self._clocks.get(key, (None, sample.monotonic_s))
        if offset is None:
            offset = sample.taken_utc.timestamp() - sample.monotonic_s
        self._clocks[key] = offset, sample.monotonic_s
        seconds = sample.monotonic_s - before_s
        if not 0 < seconds <= limits.gap_s:
            seconds = 0.0
        middle_s = offset + sample.monotonic_s - seconds / 2
        start_s = math.floor(middle_s / limits.window_s) * limits.window_s
        network: tuple[Any, ...] = (None, None)
        if sample.host is not None:
            network = _network_values(sample.host)
            if sample.node not in self._hosts:
                self._hosts[sample.node] = _Device(self._host_windows)
            self._hosts[sample.node].add(start_s, seconds, _host_values(sample.host))
        for gpu in sample.gpus:
            name = (sample.node, gpu.uuid, gpu.index)
            device = self._gpus.get(name)
            if device is None:
                device = self._gpus[name] = _Device(self._gpu_windows)
            if gpu.details is not None and gpu.details.power_limit_w is not None:
                device.power_limit_w = gpu.details.power_limit_w
            device.add(start_s, seconds, (*_gpu_values(gpu), *network, device.power_limit_w))

    def tracks(self) -> tuple[tuple[GpuTrack, ...], tuple[HostTrack, ...]]:
        """Return the tracks of GPUs and hosts in the order of their names."""
        gpus = [GpuTrack(*key, *device.columns()) for key, device in self._gpus.items()]
        hosts = [HostTrack(node, *device.columns()) for node, device in self._hosts.items()]
        self._gpus, self._hosts = {}, {}
        gpus.sort(key=lambda each: (each.node, -1 if each.index is None else each.index, each.uuid or ""))
        return tuple(gpus), tuple(sorted(hosts, key=attrgetter("node")))

    def _host_windows(self, columns: Floats, begins: _Begins) -> tuple[Floats, ...]:
        """Return the columns of a HostTrack."""
        start_s, seconds, cpu, free, total = columns
        known_s = _known(seconds, cpu)
        return (
            start_s[begins],
            _mean(cpu, known_s, begins),
            np.add.reduceat(known_s, begins),
            np.add.reduceat(known_s * (cpu >= self._limits.cpu_percent), begins),
            np.fmin.reduceat(free, begins),
            np.fmax.reduceat(total, begins),
        )

    def _gpu_windows(self, columns: Floats, begins: _Begins) -> tuple[Floats, ...]:
        """Return the columns of a GpuTrack."""
        limits = self._limits
        start_s, seconds, busy, power, used, total, reserved, *links, power_limit = columns
        nvlink, pcie, network = (np.fmax(*links[at : at + 2]) for at in (0, 2, 4))
        known_s = _known(seconds, busy)
        traffic_s = _known(known_s, np.fmax(np.fmax(nvlink, pcie), network))
        high = (
            (network >= limits.network_bytes_per_s)
            | (nvlink >= limits.nvlink_bytes_per_s)
            | (pcie >= limits.pcie_bytes_per_s)
        )
        # it rests, or runs kernels that hardly draw power (NCCL)
        slack = (busy <= limits.slack_percent) | (power <= limits.slack_power * power_limit)
        return (
            start_s[begins],
            np.add.reduceat(seconds, begins),
            np.add.reduceat(known_s, begins),
            np.add.reduceat(known_s * (busy <= limits.idle_percent), begins),
            _mean(busy, known_s, begins),
            _mean(power, _known(seconds, power), begins),
            np.fmax.reduceat(used, begins),
            np.fmin.reduceat(used, begins),
            np.fmax.reduceat(total - np.nan_to_num(reserved), begins),
            np.add.reduceat(traffic_s, begins),
            np.add.reduceat(traffic_s * (high & slack), begins),
        )


def _known(seconds: Floats, values: Floats) -> Floats:
    """Return the seconds in which the values are known, 0 elsewhere."""
    return np.where(np.isnan(values), 0.0, seconds)


def _mean(values: Floats, known_s: Floats, begins: _Begins) -> Floats:
    """Average values over the time in which they are known; NaN where that is none."""
    total_s = np.add.reduceat(known_s, begins)
    sums = np.add.reduceat(np.nan_to_num(values) * known_s, begins)
    return np.divide(sums, total_s, out=np.full_like(sums, _NAN), where=total_s > 0)

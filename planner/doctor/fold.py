"""Reduce samples of GPUs and hosts to tracks, in one pass: memory grows with windows, not samples."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Floats, GpuTrack, HostTrack
from libra_plan.planner.telemetry.recording import RecordedSample
from libra_plan.planner.telemetry.sample import GpuSample, HostSample, NodeSample

__all__ = ["SampleFold"]

_NAN = math.nan


@dataclass(slots=True)
class _GpuWindow:
    """What was seen of a GPU in the window that is open."""

    start_s: float
    seconds: float = 0.0
    known_s: float = 0.0
    idle_s: float = 0.0
    work: float = 0.0
    power: float = 0.0
    power_s: float = 0.0
    used_mib: float = -math.inf
    low_mib: float = math.inf
    limit_mib: float = _NAN
    traffic_known_s: float = 0.0
    traffic_s: float = 0.0

    def row(self) -> tuple[float, ...]:
        """Return the columns of a GpuTrack."""
        known = self.used_mib >= 0
        return (
            self.start_s,
            self.seconds,
            self.known_s,
            self.idle_s,
            self.work / self.known_s if self.known_s else _NAN,
            self.power / self.power_s if self.power_s else _NAN,
            self.used_mib if known else _NAN,
            self.low_mib if known else _NAN,
            self.limit_mib,
            self.traffic_known_s,
            self.traffic_s,
        )


@dataclass(slots=True)
class _HostWindow:
    """What was seen of a host in the window that is open."""

    start_s: float
    cpu: float = 0.0
    cpu_s: float = 0.0
    high_s: float = 0.0
    used_mib: float = -math.inf
    free_mib: float = math.inf
    total_mib: float = _NAN
    traffic_known_s: float = 0.0

    def row(self) -> tuple[float, ...]:
        """Return the columns of a HostTrack."""
        return (
            self.start_s,
            self.cpu / self.cpu_s if self.cpu_s else _NAN,
            self.cpu_s,
            self.high_s,
            self.used_mib if self.used_mib >= 0 else _NAN,
            self.free_mib if self.free_mib < math.inf else _NAN,
            self.total_mib,
            self.traffic_known_s,
        )


@dataclass(slots=True)
class _Device:
    """A GPU or host: the window that is open, and the rows of those before."""

    open: _GpuWindow | _HostWindow
    rows: array[float] = field(default_factory=lambda: array("d"))
    power_limit_w: float | None = None

    def columns(self) -> tuple[Floats, ...]:
        """Close the window and return read-only columns in the order of time."""
        row = self.open.row()
        self.rows.extend(row)
        table = np.array(self.rows).reshape(-1, len(row))
        columns = tuple(np.ascontiguousarray(table[np.argsort(table[:, 0], kind="stable")].T))
        for column in columns:
            column.setflags(write=False)
        return columns


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
        network, host = None, sample.host
        if host is not None:
            network = _most(host.network_tx_bytes_per_s, host.network_rx_bytes_per_s)
            self._add_host(sample.node, host, start_s, seconds, network)
        for gpu in sample.gpus:
            self._add_gpu(sample.node, gpu, start_s, seconds, network)

    def _add_host(
        self, node: str, sample: HostSample, start_s: float, seconds: float, network: float | None
    ) -> None:
        device = self._hosts.get(node)
        if device is None:
            device = self._hosts[node] = _Device(_HostWindow(start_s))
        elif device.open.start_s != start_s:
            device.rows.extend(device.open.row())
            device.open = _HostWindow(start_s)
        host = device.open
        assert isinstance(host, _HostWindow)
        if network is not None:
            host.traffic_known_s += seconds
        if sample.cpu_percent is not None:
            host.cpu += sample.cpu_percent * seconds
            host.cpu_s += seconds
            if sample.cpu_percent >= self._limits.cpu_percent:
                host.high_s += seconds
        if sample.memory_used_mib is not None:
            host.used_mib = max(host.used_mib, sample.memory_used_mib)
        if sample.memory_free_mib is not None:
            host.free_mib = min(host.free_mib, sample.memory_free_mib)
        if sample.memory_total_mib is not None:
            host.total_mib = sample.memory_total_mib

    def _add_gpu(
        self, node: str, sample: GpuSample, start_s: float, seconds: float, network: float | None
    ) -> None:
        key = (node, sample.uuid, sample.index)
        device = self._gpus.get(key)
        if device is None:
            device = self._gpus[key] = _Device(_GpuWindow(start_s))
        elif device.open.start_s != start_s:
            device.rows.extend(device.open.row())
            device.open = _GpuWindow(start_s)
        gpu = device.open
        assert isinstance(gpu, _GpuWindow)
        gpu.seconds += seconds
        used, power, utilization = sample.memory_used_mib, sample.power_w, sample.utilization_percent
        if used is not None:
            gpu.used_mib = max(gpu.used_mib, used)
            gpu.low_mib = min(gpu.low_mib, used)
        if sample.memory_total_mib is not None:
            gpu.limit_mib = sample.memory_total_mib - (sample.memory_reserved_mib or 0.0)
        if power is not None:
            gpu.power += power * seconds
            gpu.power_s += seconds
        if sample.details is not None and sample.details.power_limit_w is not None:
            device.power_limit_w = sample.details.power_limit_w
        if utilization is None:
            return
        gpu.known_s += seconds
        gpu.work += utilization * seconds
        if utilization <= self._limits.idle_percent:
            gpu.idle_s += seconds
        high = self._has_traffic(sample, network)
        if high is not None:
            gpu.traffic_known_s += seconds
            if high and self._has_slack(utilization, power, device.power_limit_w):
                gpu.traffic_s += seconds

    def _has_traffic(self, gpu: GpuSample, network: float | None) -> bool | None:
        """Whether a link is busy; None: no link's traffic is known."""
        limits = self._limits
        nvlink = _most(gpu.nvlink_tx_bytes_per_s, gpu.nvlink_rx_bytes_per_s)
        pcie = _most(gpu.pcie_tx_bytes_per_s, gpu.pcie_rx_bytes_per_s)
        if network is None and nvlink is None and pcie is None:
            return None
        return (
            (network is not None and network >= limits.network_bytes_per_s)
            or (nvlink is not None and nvlink >= limits.nvlink_bytes_per_s)
            or (pcie is not None and pcie >= limits.pcie_bytes_per_s)
        )

    def _has_slack(self, utilization: float, power_w: float | None, power_limit_w: float | None) -> bool:
        """Whether a GPU computes little: it rests, or runs kernels that hardly draw power (NCCL)."""
        if utilization <= self._limits.slack_percent:
            return True
        return (
            power_w is not None
            and power_limit_w is not None
            and power_w <= self._limits.slack_power * power_limit_w
        )

    def tracks(self) -> tuple[tuple[GpuTrack, ...], tuple[HostTrack, ...]]:
        """Close what is open, and return the tracks of GPUs and hosts in the order of their names."""
        gpus = [GpuTrack(*key, *device.columns()) for key, device in self._gpus.items()]
        hosts = [HostTrack(node, *device.columns()) for node, device in self._hosts.items()]
        self._gpus, self._hosts = {}, {}
        gpus.sort(key=lambda each: (each.node, -1 if each.index is None else each.index, each.uuid or ""))
        return tuple(gpus), tuple(sorted(hosts, key=attrgetter("node")))


def _most(first: float | None, second: float | None) -> float | None:
    """Return the larger of the readings that are known."""
    if first is None or second is None:
        return first if second is None else second
    return max(first, second)

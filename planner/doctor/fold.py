"""Fold samples of GPUs and hosts into columns, in one pass: memory grows with windows, not samples."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable

import numpy as np

from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Floats, GpuTrack, HostTrack
from libra_plan.planner.telemetry.recording import RecordedSample
from libra_plan.planner.telemetry.sample import GpuSample, HostSample, NodeSample

__all__ = ["SampleFold"]

_NAN = math.nan


class _Columns:
    """Columns of eight bytes a value, one row a window."""

    def __init__(self, width: int) -> None:
        self._columns = tuple(array("d") for _ in range(width))

    def append(self, *row: float) -> None:
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def frozen(self) -> tuple[Floats, ...]:
        """Give the columns in the order of time, not to be written to."""
        order = np.argsort(np.array(self._columns[0]), kind="stable")
        found = tuple(np.array(column)[order] for column in self._columns)
        for column in found:
            column.setflags(write=False)
        return found


class _Gpu:
    """One GPU and the window that is open."""

    __slots__ = (
        "columns",
        "idle_s",
        "known_s",
        "limit_mib",
        "low_mib",
        "number",
        "power",
        "power_limit_w",
        "power_s",
        "seconds",
        "traffic_known_s",
        "traffic_s",
        "used_mib",
        "work",
    )

    def __init__(self, number: int) -> None:
        self.columns = _Columns(11)
        self.power_limit_w: float | None = None
        self.open(number)

    def open(self, number: int) -> None:
        self.number = number
        self.seconds = self.known_s = self.idle_s = self.work = self.power = self.power_s = 0.0
        self.traffic_known_s = self.traffic_s = 0.0
        self.used_mib, self.low_mib, self.limit_mib = -math.inf, math.inf, _NAN

    def close(self, window_s: float) -> None:
        known = self.used_mib >= 0
        self.columns.append(
            self.number * window_s,
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


class _Host:
    """One node, its clock, and the window that is open."""

    def __init__(self, number: int) -> None:
        self.columns = _Columns(8)
        self.open(number)

    def open(self, number: int) -> None:
        self.number = number
        self.cpu = self.cpu_s = self.high_s = self.traffic_known_s = 0.0
        self.used_mib, self.free_mib, self.total_mib = -math.inf, math.inf, _NAN

    def close(self, window_s: float) -> None:
        self.columns.append(
            self.number * window_s,
            self.cpu / self.cpu_s if self.cpu_s else _NAN,
            self.cpu_s,
            self.high_s,
            self.used_mib if self.used_mib >= 0 else _NAN,
            self.free_mib if self.free_mib < math.inf else _NAN,
            self.total_mib,
            self.traffic_known_s,
        )


class SampleFold:
    """Takes samples of any number of nodes, each node's in order, and gives tracks.

    A sample stands for the time since the one before it of its run, unless that was longer than
    `gap_s`: a first sample, and one after a gap, cover no time. A run is placed on the axis by the
    wall clock of its first sample; one that is set later moves nothing.
    """

    def __init__(self, limits: Thresholds) -> None:
        self._limits = limits
        self._clocks: dict[tuple[str, str], tuple[float, float]] = {}
        self._hosts: dict[str, _Host] = {}
        self._gpus: dict[tuple[str, str | None, int | None], _Gpu] = {}

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
        number = math.floor(middle_s / limits.window_s)
        network = None
        if sample.host is not None:
            network = _most(sample.host.network_tx_bytes_per_s, sample.host.network_rx_bytes_per_s)
            self._add_host(sample.node, sample.host, number, seconds, network)
        for gpu in sample.gpus:
            self._add_gpu(sample.node, gpu, number, seconds, network)

    def _add_host(
        self, node: str, sample: HostSample, number: int, seconds: float, network: float | None
    ) -> None:
        host = self._hosts.get(node)
        if host is None:
            host = self._hosts[node] = _Host(number)
        elif host.number != number:
            host.close(self._limits.window_s)
            host.open(number)
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
        self, node: str, sample: GpuSample, number: int, seconds: float, network: float | None
    ) -> None:
        key = (node, sample.uuid, sample.index)
        gpu = self._gpus.get(key)
        if gpu is None:
            gpu = self._gpus[key] = _Gpu(number)
        elif gpu.number != number:
            gpu.close(self._limits.window_s)
            gpu.open(number)
        gpu.seconds += seconds
        used = sample.memory_used_mib
        if used is not None:
            gpu.used_mib = max(gpu.used_mib, used)
            gpu.low_mib = min(gpu.low_mib, used)
        if sample.memory_total_mib is not None:
            gpu.limit_mib = sample.memory_total_mib - (sample.memory_reserved_mib or 0.0)
        power = sample.power_w
        if power is not None:
            gpu.power += power * seconds
            gpu.power_s += seconds
        if sample.details is not None and sample.details.power_limit_w is not None:
            gpu.power_limit_w = sample.details.power_limit_w
        utilization = sample.utilization_percent
        if utilization is None:
            return
        gpu.known_s += seconds
        gpu.work += utilization * seconds
        if utilization <= self._limits.idle_percent:
            gpu.idle_s += seconds
        high = self._is_high(sample, network)
        if high is not None:
            gpu.traffic_known_s += seconds
            if high and self._has_slack(utilization, power, gpu.power_limit_w):
                gpu.traffic_s += seconds

    def _is_high(self, gpu: GpuSample, network: float | None) -> bool | None:
        """Tell whether a link is busy; None: no link's traffic is known."""
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
        """Tell whether a GPU computes little: rests, or runs kernels that hardly draw power (NCCL)."""
        if utilization <= self._limits.slack_percent:
            return True
        known = power_w is not None and power_limit_w is not None
        return known and (power_w or 0.0) <= self._limits.slack_power * (power_limit_w or 0.0)

    def tracks(self) -> tuple[tuple[GpuTrack, ...], tuple[HostTrack, ...]]:
        """Close what is open, and give the tracks of GPUs and hosts in the order of their names."""
        gpus = []
        for (node, uuid, index), gpu in self._gpus.items():
            gpu.close(self._limits.window_s)
            gpus.append(GpuTrack(node, uuid, index, *gpu.columns.frozen()))
        hosts = []
        for node, host in self._hosts.items():
            host.close(self._limits.window_s)
            hosts.append(HostTrack(node, *host.columns.frozen()))
        self._gpus, self._hosts = {}, {}
        gpus.sort(key=lambda each: (each.node, -1 if each.index is None else each.index, each.uuid or ""))
        return tuple(gpus), tuple(sorted(hosts, key=lambda each: each.node))


def _most(first: float | None, second: float | None) -> float | None:
    """Give the larger of two readings, of those that are known."""
    if first is None or second is None:
        return first if second is None else second
    return max(first, second)

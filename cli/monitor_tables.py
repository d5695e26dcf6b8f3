"""How samples and summaries look: a table a look, a line of JSON a sample, a table a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from libra_plan.cli import render
from libra_plan.profiles.units import MIB_PER_GIB

if TYPE_CHECKING:
    from libra_plan.planner.telemetry.sample import GpuSample, HostSample, Sample
    from libra_plan.planner.telemetry.window import GpuWindow, NodeWindow, Summary

__all__ = ["print_windows", "writer"]

_COLUMNS = (
    "GPU",
    "name",
    "state",
    "util %",
    "memory GiB",
    "W",
    "°C",
    "MHz",
    "NVLink GB/s",
    "PCIe GB/s",
    "processes",
)
_RIGHT = (3, 4, 5, 6, 7, 8, 9)
_WINDOW_COLUMNS = ("GPU", "reading", "mean", "p50", "p95", "p99", "peak", "known")
_CONTEXT_MIB = 1024.0  # an idle GPU's own is less, a process with a CUDA context takes more
_HOST_ROWS = ("cpu_percent", "memory_used_mib", "network_tx_bytes_per_s", "network_rx_bytes_per_s")


def writer(as_json: bool) -> Callable[[Sequence[Sample]], None]:
    """Give a function that writes samples as they come."""
    if not as_json:
        return _print_samples
    import msgspec

    encode = msgspec.json.Encoder().encode

    def write(samples: Sequence[Sample]) -> None:
        for sample in samples:
            render.print_line(encode(sample).decode())

    return write


def _print_samples(samples: Sequence[Sample]) -> None:
    for sample in samples:
        host = "" if sample.host is None else _host(sample.host)
        render.print_text(f"{sample.taken_utc:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + f"Z  {sample.node}{host}")
        for fault in sample.faults:
            render.print_text(f"fault: {fault}")
        if sample.gpus:
            render.print_table(_COLUMNS, [_row(gpu) for gpu in sample.gpus], _RIGHT)
    render.print_line("")


def _host(host: HostSample) -> str:
    cpu = "?" if host.cpu_percent is None else f"{host.cpu_percent:.0f}%"
    cores = "?" if host.cpu_cores is None else str(host.cpu_cores)
    memory = f"{_gib(host.memory_used_mib)}/{_gib(host.memory_total_mib)} GiB"
    traffic = f"{_gb(host.network_tx_bytes_per_s)}↑ {_gb(host.network_rx_bytes_per_s)}↓ GB/s"
    return f"  CPU {cpu} of {cores} cores, memory {memory}, network {traffic}"


def _row(gpu: GpuSample) -> list[str]:
    state = gpu.state.value + (f" {gpu.age_s:.0f} s" if gpu.age_s is not None and gpu.age_s >= 1 else "")
    return [
        "?" if gpu.index is None else str(gpu.index),
        gpu.name or gpu.uuid or "?",
        state if gpu.why is None else f"{state}: {gpu.why}",
        _number(gpu.utilization_percent),
        f"{_gib(gpu.memory_used_mib)}/{_gib(gpu.memory_total_mib)}",
        _number(gpu.power_w),
        _number(gpu.temperature_c),
        _number(gpu.sm_clock_mhz),
        f"{_gb(gpu.nvlink_tx_bytes_per_s)}/{_gb(gpu.nvlink_rx_bytes_per_s)}",
        f"{_gb(gpu.pcie_tx_bytes_per_s)}/{_gb(gpu.pcie_rx_bytes_per_s)}",
        _holders(gpu),
    ]


def _holders(gpu: GpuSample) -> str:
    """List processes; none seen on a GPU whose memory is used means that they cannot be seen."""
    notes = [] if not gpu.xids else [f"XID {', '.join(map(str, gpu.xids))}"]
    details = gpu.details
    if details is not None and details.mig:
        notes.append(f"MIG, {len(details.instances)} instances")
    seen = None if details is None else details.processes
    if seen is None:
        return "; ".join([*notes, "?"])
    if not seen and (gpu.memory_used_mib is None or gpu.memory_used_mib > _CONTEXT_MIB):
        return "; ".join([*notes, "none seen from here"])
    return "; ".join([*notes, *(f"{each.pid} {each.name or '?'} {_gib(each.used_mib)} GiB" for each in seen)])


def print_windows(windows: Sequence[NodeWindow]) -> None:
    """Write a table for each window."""
    for number, window in enumerate(windows):
        if number:
            render.print_line("")
        began = f"{window.began_utc:%Y-%m-%dT%H:%M:%SZ}"
        render.print_text(f"{window.node}  {began} and {window.length_s:g} s on, {window.samples} samples")
        for fault in window.faults:
            render.print_text(f"fault: {fault}")
        rows = [_summary_row("host", name, each) for name, each in window.host.items() if name in _HOST_ROWS]
        for gpu in window.gpus:
            name = gpu.uuid or "?" if gpu.index is None else str(gpu.index)
            rows += [_summary_row(name, reading, each) for reading, each in gpu.readings.items()]
        render.print_table(_WINDOW_COLUMNS, rows, (2, 3, 4, 5, 6, 7))
        for gpu in window.gpus:
            for line in _remarks(gpu):
                render.print_text(f"GPU {gpu.uuid or '?' if gpu.index is None else gpu.index}: {line}")


def _summary_row(owner: str, name: str, each: Summary) -> list[str]:
    values = (each.mean, each.p50, each.p95, each.p99, each.peak)
    return [owner, name, *(_short(value) for value in values), str(each.count)]


def _remarks(gpu: GpuWindow) -> list[str]:
    lines = [f"{count} samples {state}" for state, count in gpu.states.items() if state != "ok"]
    lines += [f"XID {xid}" for xid in gpu.xids]
    if gpu.ecc_uncorrected:
        lines.append(f"{gpu.ecc_uncorrected} uncorrected ECC errors")
    lines += [
        f"pid {each.pid} {each.name or '?'}: at most {_gib(each.peak_used_mib)} GiB" for each in gpu.processes
    ]
    return lines


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _gib(mib: float | None) -> str:
    return "?" if mib is None else f"{mib / MIB_PER_GIB:.1f}"


def _gb(rate: float | None) -> str:
    return "?" if rate is None else f"{rate / 1e9:.2f}"

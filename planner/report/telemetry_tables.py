"""Tables of samples, of summaries of recordings, and of rates of work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from libra_plan.planner.report.text_table import table_text
from libra_plan.profiles.units import MIB_PER_GIB

if TYPE_CHECKING:
    from libra_plan.planner.telemetry.sample import GpuSample, HostSample, NodeSample
    from libra_plan.planner.telemetry.summary import GpuWindow, NodeWindow, ReadingSummary
    from libra_plan.planner.telemetry.throughput import Rate

__all__ = ["rate_table", "sample_lines", "sample_text", "summary_text"]

_SAMPLE_COLUMNS = (
    *("GPU", "name", "state", "util %", "memory GiB", "W", "°C", "MHz"),
    *("NVLink GB/s", "PCIe GB/s", "processes"),
)
_SUMMARY_COLUMNS = ("GPU", "reading", "mean", "p50", "p95", "p99", "peak", "known")
_RATE_COLUMNS = (
    *("task", "role", "ranks", "hours", "tokens /s", "samples /s", "steps /s"),
    *("waiting", "stale", "queues"),
)
_CONTEXT_MIB = 1024.0  # an idle GPU's own is less, a process with a CUDA context takes more
_HOST_ROWS = ("cpu_percent", "memory_used_mib", "network_tx_bytes_per_s", "network_rx_bytes_per_s")


def sample_text(samples: Sequence[NodeSample]) -> str:
    """Return a table for each node of a look."""
    blocks = []
    for sample in samples:
        host = "" if sample.host is None else _host(sample.host)
        blocks.append(f"{sample.taken_utc:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + f"Z  {sample.node}{host}")
        blocks += [f"fault: {fault}" for fault in sample.faults]
        if sample.gpus:
            rows = [_gpu_row(gpu) for gpu in sample.gpus]
            blocks.append(table_text(_SAMPLE_COLUMNS, rows, (3, 4, 5, 6, 7, 8, 9)))
    return "\n".join([*blocks, ""])


def sample_lines(samples: Sequence[NodeSample]) -> str:
    """Return a line of JSON for each node of a look."""
    import msgspec

    return "\n".join(msgspec.json.encode(sample).decode() for sample in samples)


def _host(host: HostSample) -> str:
    cpu = "?" if host.cpu_percent is None else f"{host.cpu_percent:.0f}%"
    cores = "?" if host.cpu_cores is None else str(host.cpu_cores)
    memory = f"{_gib(host.memory_used_mib)}/{_gib(host.memory_total_mib)} GiB"
    traffic = f"{_gb(host.network_tx_bytes_per_s)}↑ {_gb(host.network_rx_bytes_per_s)}↓ GB/s"
    return f"  CPU {cpu} of {cores} cores, memory {memory}, network {traffic}"


def _gpu_row(gpu: GpuSample) -> list[str]:
    state = gpu.state.value + (f" {gpu.age_s:.0f} s" if gpu.age_s is not None and gpu.age_s >= 1 else "")
    return [
        "?" if gpu.index is None else str(gpu.index),
        gpu.name or gpu.uuid or "?",
        state if gpu.why is None else f"{state}: {gpu.why}",
        _whole(gpu.utilization_percent),
        f"{_gib(gpu.memory_used_mib)}/{_gib(gpu.memory_total_mib)}",
        _whole(gpu.power_w),
        _whole(gpu.temperature_c),
        _whole(gpu.sm_clock_mhz),
        f"{_gb(gpu.nvlink_tx_bytes_per_s)}/{_gb(gpu.nvlink_rx_bytes_per_s)}",
        f"{_gb(gpu.pcie_tx_bytes_per_s)}/{_gb(gpu.pcie_rx_bytes_per_s)}",
        _processes(gpu),
    ]


def _processes(gpu: GpuSample) -> str:
    """List processes; none seen on a GPU whose memory is used means that they cannot be seen."""
    notes = [] if not gpu.xids else [f"XID {', '.join(map(str, gpu.xids))}"]
    details = gpu.details
    if details is not None and details.mig:
        notes.append(f"MIG, {len(details.instances)} instances")
    seen = None if details is None else details.processes
    if seen is None:
        notes.append("?")
    elif not seen and (gpu.memory_used_mib is None or gpu.memory_used_mib > _CONTEXT_MIB):
        notes.append("none seen from here")
    else:
        notes += [f"{each.pid} {each.name or '?'} {_gib(each.used_mib)} GiB" for each in seen]
    return "; ".join(notes)


def summary_text(windows: Sequence[NodeWindow]) -> str:
    """Return a table for each window."""
    return "\n\n".join(_window_text(window) for window in windows)


def _window_text(window: NodeWindow) -> str:
    began = f"{window.began_utc:%Y-%m-%dT%H:%M:%SZ}"
    lines = [f"{window.node}  {began} and {window.length_s:g} s on, {window.samples} samples"]
    lines += [f"fault: {fault}" for fault in window.faults]
    rows = [_summary_row("host", name, each) for name, each in window.host.items() if name in _HOST_ROWS]
    remarks = []
    for gpu in window.gpus:
        name = gpu.uuid or "?" if gpu.index is None else str(gpu.index)
        rows += [_summary_row(name, reading, each) for reading, each in gpu.readings.items()]
        remarks += [f"GPU {name}: {line}" for line in _remarks(gpu)]
    return "\n".join([*lines, table_text(_SUMMARY_COLUMNS, rows, (2, 3, 4, 5, 6, 7)), *remarks])


def _summary_row(owner: str, name: str, each: ReadingSummary) -> list[str]:
    values = (each.mean, each.p50, each.p95, each.p99, each.peak)
    return [owner, name, *(_number(value) for value in values), str(each.count)]


def _remarks(gpu: GpuWindow) -> list[str]:
    lines = [f"{count} samples {state}" for state, count in gpu.states.items() if state != "ok"]
    lines += [f"XID {xid}" for xid in gpu.xids]
    if gpu.ecc_uncorrected:
        lines.append(f"{gpu.ecc_uncorrected} uncorrected ECC errors")
    for each in gpu.processes:
        lines.append(f"pid {each.pid} {each.name or '?'}: at most {_gib(each.peak_used_mib)} GiB")
    return lines


def rate_table(rates: Sequence[Rate]) -> str:
    """Return a row for each role."""
    rows = [
        [
            rate.task,
            rate.role,
            str(rate.ranks),
            f"{rate.covered_s / 3600:.3g}",
            _number(rate.tokens_per_s),
            _number(rate.samples_per_s),
            _number(rate.steps_per_s),
            "?" if rate.idle is None else f"{rate.idle:.1%}",
            _number(rate.staleness),
            ", ".join(f"{queue.name} {queue.last:g} (≤ {queue.longest:g})" for queue in rate.queues),
        ]
        for rate in rates
    ]
    return table_text(_RATE_COLUMNS, rows, range(2, 9))


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _whole(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _gib(mib: float | None) -> str:
    return "?" if mib is None else f"{mib / MIB_PER_GIB:.1f}"


def _gb(rate: float | None) -> str:
    return "?" if rate is None else f"{rate / 1e9:.2f}"

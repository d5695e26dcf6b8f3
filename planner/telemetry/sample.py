"""Samples of a node's GPUs and host. A reading that is unknown is None, never 0."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Annotated

import msgspec

__all__ = [
    "HOST_READINGS",
    "READINGS",
    "GpuDetails",
    "GpuSample",
    "GpuState",
    "HostSample",
    "MigInstance",
    "NodeSample",
    "ProcessUse",
    "Utc",
    "main_process_memory_mib",
]

Utc = Annotated[datetime, msgspec.Meta(tz=True)]  # a stamp without a time zone is refused


class GpuState(str, Enum):
    """Whether a GPU can be read; only `ok` says anything about its load."""

    OK = "ok"
    LATE = "late"  # no answer within the time limit
    LOST = "lost"  # off the bus, or it needs a reset
    UNREADABLE = "unreadable"  # it answered with errors only
    DUPLICATE = "duplicate"  # another GPU has the same UUID, so whose the readings are is unknown


class ProcessUse(msgspec.Struct, frozen=True, kw_only=True):
    """One process that holds GPU memory.

    `pid` is the driver's, in the host's namespace. `container_pid`, `name` and `started_utc` are None
    where the process cannot be seen from here. A pid may be reused, a pid with its start cannot.
    """

    pid: int
    container_pid: int | None = None
    name: str | None = None
    started_utc: Utc | None = None
    used_mib: float | None = None


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a GPU in MIG mode. The driver reports no utilization of instances."""

    uuid: str
    memory_total_mib: float | None = None
    memory_used_mib: float | None = None
    memory_free_mib: float | None = None


class GpuDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a GPU less often than its load; `age_s` seconds before the sample.

    `processes` is None where the list cannot be read, and empty where none are seen from here, which
    does not mean that the GPU is free. ECC errors are counted since the driver was loaded. `unknown`
    holds the reason for each unknown reading.
    """

    age_s: float | None = None
    processes: tuple[ProcessUse, ...] | None = None
    mig: bool | None = None
    instances: tuple[MigInstance, ...] = ()
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    power_limit_w: float | None = None
    unknown: dict[str, str] = {}


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """The readings of one GPU, taken together `age_s` seconds before the sample.

    Where the readings are unknown, `age_s` is the time since the last good ones (None: there were
    none, or the source does not report it). `utilization_percent` is the time with a kernel running,
    `memory_busy_percent` the time with memory traffic. `memory_used_mib` excludes what the driver
    reserves (NVML's memory v2). Rates are means since the last sample. `xids` are the errors since
    the last sample, None where they cannot be read.
    """

    uuid: str | None
    index: int | None = None
    name: str | None = None
    state: GpuState = GpuState.OK
    why: str | None = None
    age_s: float | None = None
    utilization_percent: float | None = None
    memory_busy_percent: float | None = None
    memory_total_mib: float | None = None
    memory_used_mib: float | None = None
    memory_free_mib: float | None = None
    memory_reserved_mib: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    xids: tuple[int, ...] | None = None
    details: GpuDetails | None = None


_NO_READING = {"uuid", "index", "name", "state", "why", "age_s", "xids", "details"}
READINGS: tuple[str, ...] = tuple(name for name in GpuSample.__struct_fields__ if name not in _NO_READING)


class HostSample(msgspec.Struct, frozen=True, kw_only=True):
    """CPU, memory and network of a node. `memory_free_mib` is what new processes can get."""

    cpu_percent: float | None = None
    cpu_cores: int | None = None
    memory_total_mib: float | None = None
    memory_used_mib: float | None = None
    memory_free_mib: float | None = None
    network_tx_bytes_per_s: float | None = None
    network_rx_bytes_per_s: float | None = None


HOST_READINGS: tuple[str, ...] = tuple(name for name in HostSample.__struct_fields__ if name != "cpu_cores")


class NodeSample(msgspec.Struct, frozen=True, kw_only=True, tag="sample", tag_field="kind"):
    """One sample of one node.

    `taken_utc` is for people and for joining nodes. Durations come from `monotonic_s`, which no
    clock change affects; it compares only within one run of one node's recording. `faults` are the
    problems beyond single GPUs.
    """

    node: str
    taken_utc: Utc
    monotonic_s: float
    source: str
    faults: tuple[str, ...] = ()
    host: HostSample | None = None
    gpus: tuple[GpuSample, ...] = ()


def main_process_memory_mib(gpu: GpuSample) -> float | None:
    """Return how much of a GPU's memory its main process could have, None where that is unknown.

    That is all memory except what the driver and other processes hold; the process that holds most is
    the main one.
    """
    processes = None if gpu.details is None else gpu.details.processes
    held = [each.used_mib for each in processes or () if each.used_mib is not None]
    total, used = gpu.memory_total_mib, gpu.memory_used_mib
    if gpu.state is not GpuState.OK or total is None or used is None or not held:
        return None
    return total - (gpu.memory_reserved_mib or 0.0) - max(used - max(held), 0.0)

"""Ask NVML for a GPU's load and details. An error makes one reading unknown, a lost GPU all of its own.

The library is an argument, so that tests can stand in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from libra_plan.planner.telemetry.processes import resolve
from libra_plan.planner.telemetry.sample import GpuDetails, MigInstance, ProcessUse
from libra_plan.profiles.units import MIB

__all__ = ["Device", "GpuLost", "Load", "Xids", "list_devices", "open_device", "read_details", "read_load"]

T = TypeVar("T")

_LOST = frozenset({15, 16})  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED
_ALL_LINKS = 0xFFFFFFFF
# nvml.h: NVLINK_THROUGHPUT_DATA_TX and _RX count KiB, PCIE_COUNT_TX_BYTES and _RX_BYTES bytes
_NVLINK: tuple[tuple[str, Any, int], ...] = (
    ("nvlink_tx_bytes_per_s", (138, _ALL_LINKS), 1024),
    ("nvlink_rx_bytes_per_s", (139, _ALL_LINKS), 1024),
)
_PCIE: tuple[tuple[str, Any, int], ...] = (
    ("pcie_tx_bytes_per_s", 197, 1),
    ("pcie_rx_bytes_per_s", 198, 1),
)
_NARROW = "the counter has 32 bits: it wraps unseen"
_COUNTS = {2: "ulVal", 3: "ullVal", 4: "sllVal"}  # by nvmlValueType_t; 32 bits of bytes wrap unseen
_PCIE_KIB = 1024  # nvmlDeviceGetPcieThroughput tells KiB/s


class GpuLost(Exception):
    """The GPU is off the bus or needs a reset; its handle is of no more use."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU and NVML's handle for it; without a handle `why` says what stands in the way."""

    index: int
    handle: Any = None
    uuid: str | None = None
    name: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """One reading of a GPU's load: values by name, byte counters by the rate they give, and why not."""

    values: dict[str, float | None]
    counters: dict[str, int | None]
    unknown: dict[str, str]

    @property
    def counts_pcie(self) -> bool:
        """Tell whether the driver counts PCIe traffic so that it can be used."""
        return self.unknown.get(_PCIE[0][0]) != _NARROW


@dataclass(frozen=True, slots=True)
class _Asker:
    """Turns an error of NVML into None and keeps its reason."""

    nvml: Any
    unknown: dict[str, str] = field(default_factory=dict)

    def __call__(self, name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except _errors(self.nvml) as error:
            if getattr(error, "value", None) in _LOST:
                raise GpuLost(str(error)) from None
            self.unknown[name] = str(error)
            return None


def _errors(nvml: Any) -> tuple[type[Exception], ...]:
    """Give what a call may raise: the driver's errors, and a library older or newer than the driver."""
    return (nvml.NVMLError, getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError), AttributeError)


def list_devices(nvml: Any) -> tuple[Device, ...]:
    """List the GPUs; one that cannot be opened keeps its place."""
    return tuple(open_device(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))


def open_device(nvml: Any, index: int, uuid: str | None = None) -> Device:
    """Open a GPU by its UUID where that is known: indices move when a GPU is gone."""
    try:
        by_uuid = nvml.nvmlDeviceGetHandleByUUID
        handle = nvml.nvmlDeviceGetHandleByIndex(index) if uuid is None else by_uuid(uuid)
        name = nvml.nvmlDeviceGetName(handle)
        return Device(
            index, handle, nvml.nvmlDeviceGetUUID(handle), name if isinstance(name, str) else name.decode()
        )
    except _errors(nvml) as error:
        return Device(index, None, uuid, None, str(error))


def read_load(nvml: Any, handle: Any, with_pcie: bool, counts_pcie: bool = True) -> Load:
    """Read what changes all the time.

    Where the driver keeps no PCIe counters and `with_pcie` is set, it measures the traffic, 20 ms a
    direction. `counts_pcie` is what an earlier load of the GPU said: asking an H200 for PCIe counters
    takes CPU at every look, for 32 bits that are of no use.
    """
    ask = _Asker(nvml)
    used = ask("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    power = ask("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    values = {
        "utilization_percent": None if used is None else float(used.gpu),
        "memory_busy_percent": None if used is None else float(used.memory),
        "power_w": None if power is None else power / 1000.0,
        "sm_clock_mhz": ask("sm_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        "memory_clock_mhz": ask(
            "memory_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
        ),
        "temperature_c": ask(
            "temperature_c", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        ),
        **_memory(ask, handle),
    }
    counters = _counters(ask, handle, counts_pcie)
    if with_pcie and counters["pcie_tx_bytes_per_s"] is None:
        for name, way in (("pcie_tx_bytes_per_s", 0), ("pcie_rx_bytes_per_s", 1)):
            told = ask(name, lambda way=way: nvml.nvmlDeviceGetPcieThroughput(handle, way))  # type: ignore[misc]
            values[name] = None if told is None else told * _PCIE_KIB
    return Load(values, counters, ask.unknown)


def _memory(ask: _Asker, handle: Any) -> dict[str, float | None]:
    """Read memory by NVML's second definition, in which used leaves out the driver's reserve.

    An older driver knows only the first one: its used means something else, so it stays unknown.
    """
    nvml = ask.nvml
    info = ask("memory_used_mib", lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    first = info or ask("memory_total_mib", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return {
        "memory_total_mib": None if first is None else first.total / MIB,
        "memory_used_mib": None if info is None else info.used / MIB,
        "memory_free_mib": None if first is None else first.free / MIB,
        "memory_reserved_mib": None if info is None else info.reserved / MIB,
    }


def _counters(ask: _Asker, handle: Any, counts_pcie: bool) -> dict[str, int | None]:
    asked = (*_NVLINK, *_PCIE) if counts_pcie else _NVLINK
    if not counts_pcie:
        ask.unknown.update((name, _NARROW) for name, _, _ in _PCIE)
    fields = ask(
        "traffic", lambda: ask.nvml.nvmlDeviceGetFieldValues(handle, [field for _, field, _ in asked])
    )
    found: dict[str, int | None] = dict.fromkeys(name for name, _, _ in (*_NVLINK, *_PCIE))
    for (name, _, unit), value in zip(asked, fields or (), strict=False):
        if value.nvmlReturn != 0:
            ask.unknown[name] = f"NVML error {value.nvmlReturn}"
        elif value.valueType not in _COUNTS:
            ask.unknown[name] = _NARROW
        else:
            found[name] = int(getattr(value.value, _COUNTS[value.valueType])) * unit
    return found


def read_details(nvml: Any, handle: Any, unknown: dict[str, str]) -> GpuDetails:
    """Read what changes rarely or costs more; `unknown` are the reasons the load has found."""
    ask = _Asker(nvml)
    mig = ask("mig", lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    limit = ask("power_limit_w", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    ecc = [
        ask(
            name,
            lambda kind=kind: nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC),  # type: ignore[misc]
        )
        for name, kind in (
            ("ecc_corrected", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ("ecc_uncorrected", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        )
    ]
    processes = _processes(ask, handle)
    instances = tuple(_instances(ask, handle)) if mig else ()
    return GpuDetails(
        age_s=0.0,
        processes=processes,
        mig=None if mig is None else bool(mig),
        instances=instances,
        ecc_corrected=ecc[0],
        ecc_uncorrected=ecc[1],
        power_limit_w=None if limit is None else limit / 1000.0,
        unknown={**unknown, **ask.unknown},
    )


def _processes(ask: _Asker, handle: Any) -> tuple[ProcessUse, ...] | None:
    nvml = ask.nvml
    compute = ask("processes", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    if compute is None:
        return None
    graphics = ask("graphics processes", lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle))
    found = {each.pid: each.usedGpuMemory for each in (*(graphics or ()), *compute)}
    return tuple(resolve(pid, None if used is None else used / MIB) for pid, used in sorted(found.items()))


def _instances(ask: _Asker, handle: Any) -> Iterator[MigInstance]:
    """Read MIG instances through their own handles: a container may read those and not the parent."""
    nvml = ask.nvml
    for place in range(ask("mig instances", lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
            uuid = nvml.nvmlDeviceGetUUID(instance)
        except _errors(nvml):  # an empty place
            continue
        memory = _memory(_Asker(nvml), instance)
        yield MigInstance(uuid=uuid, **{key: memory[key] for key in memory if key != "memory_reserved_mib"})


class Xids:
    """Hears XID errors from the moment it is made."""

    def __init__(self, nvml: Any, devices: tuple[Device, ...]) -> None:
        self._nvml = nvml
        self._set = nvml.nvmlEventSetCreate()
        self.heard_of: set[str] = set()
        for device in devices:
            try:
                nvml.nvmlDeviceRegisterEvents(device.handle, nvml.nvmlEventTypeXidCriticalError, self._set)
            except _errors(nvml):
                continue
            if device.uuid is not None:
                self.heard_of.add(device.uuid)

    def poll(self) -> dict[str, tuple[int, ...]]:
        """Give the errors since the last call by GPU; a GPU that cannot be heard is left out."""
        heard: dict[str, tuple[int, ...]] = dict.fromkeys(self.heard_of, ())
        while self.heard_of:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
                uuid = self._nvml.nvmlDeviceGetUUID(event.device)
            except _errors(self._nvml):  # a timeout: there is none left
                break
            heard[uuid] = (*heard.get(uuid, ()), int(event.eventData))
        return heard

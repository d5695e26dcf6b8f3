"""All calls to NVML. An error makes one reading unknown (None, never 0), a lost GPU all of its readings.

Except for `load_library`, the library is an argument, so that tests can replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.host import name_process
from libra_plan.planner.telemetry.sample import GpuDetails, MigInstance, ProcessUse
from libra_plan.profiles.units import MIB

__all__ = [
    "Card",
    "Device",
    "GpuLoad",
    "GpuLost",
    "Xids",
    "list_devices",
    "load_library",
    "open_device",
    "read_cards",
    "read_details",
    "read_load",
]

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
_PCIE_KIB = 1024  # nvmlDeviceGetPcieThroughput returns KiB/s


class GpuLost(Exception):
    """The GPU is off the bus or needs a reset; its handle can no longer be used."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as NVML sees it, by its PCI-order index. Memory in MiB.

    `used_mib` leaves out what the driver reserves. `processes` lists the pids that hold the GPU; inside
    a container an empty list does not mean free, so `used_mib` counts too. A card in `mig` mode is
    divided into instances and is not a whole GPU.
    """

    index: int
    uuid: str
    name: str
    memory_mib: float | None
    used_mib: float | None
    processes: tuple[int, ...] | None
    mig: bool | None


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU and NVML's handle for it; without a handle `why` is the reason."""

    index: int
    handle: Any = None
    uuid: str | None = None
    name: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """One reading of a GPU's load: values by name, byte counters by the rate they give, and reasons."""

    values: dict[str, float | None]
    counters: dict[str, int | None]
    unknown: dict[str, str]

    @property
    def counts_pcie(self) -> bool:
        """Whether the driver counts PCIe traffic in a form that can be used."""
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
    """Return what a call may raise: the driver's errors, and those of a library that does not match it."""
    return (nvml.NVMLError, getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError), AttributeError)


def load_library() -> Any:
    """Return the module pynvml; raise an InputError where another package has taken its name."""
    import pynvml

    if not hasattr(pynvml, "nvmlDeviceGetMemoryInfo_v2") and not hasattr(pynvml, "nvmlMemory_v2"):
        raise InputError(
            "the module pynvml is not the one of nvidia-ml-py",
            got=getattr(pynvml, "__file__", "?"),
            way_out="pip uninstall pynvml nvidia-ml-py3; pip install --force-reinstall nvidia-ml-py",
        )
    return pynvml


def read_cards() -> tuple[Card, ...]:
    """Read every GPU of this machine; raise an InputError where NVML cannot be used."""
    nvml = load_library()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InputError(
            "the GPUs of this machine cannot be read",
            got=f"NVML: {error}",
            allowed="a machine with an NVIDIA driver that answers",
            way_out="name the cluster with gpus (--gpus N) or cluster (--cluster FILE)",
        ) from None
    try:
        return tuple(_card(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    finally:
        nvml.nvmlShutdown()


def _card(nvml: Any, index: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except nvml.NVMLError:
            return None

    memory = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    running = ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    mig = ask(lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    return Card(
        index,
        nvml.nvmlDeviceGetUUID(handle),
        _text(nvml.nvmlDeviceGetName(handle)),
        None if memory is None else memory.total / MIB,
        None if memory is None else memory.used / MIB,
        None if running is None else tuple(sorted(process.pid for process in running)),
        None if mig is None else bool(mig),
    )


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode()


def list_devices(nvml: Any) -> tuple[Device, ...]:
    """List the GPUs; one that cannot be opened keeps its place."""
    return tuple(open_device(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))


def open_device(nvml: Any, index: int, uuid: str | None = None) -> Device:
    """Open a GPU by its UUID where that is known: indices change when a GPU is gone."""
    try:
        by_uuid = nvml.nvmlDeviceGetHandleByUUID
        handle = nvml.nvmlDeviceGetHandleByIndex(index) if uuid is None else by_uuid(uuid)
        name = _text(nvml.nvmlDeviceGetName(handle))
        return Device(index, handle, nvml.nvmlDeviceGetUUID(handle), name)
    except _errors(nvml) as error:
        return Device(index, None, uuid, None, str(error))


def read_load(nvml: Any, handle: Any, with_pcie: bool, counts_pcie: bool = True) -> GpuLoad:
    """Read what changes all the time.

    Where the driver has no PCIe counters and `with_pcie` is set, it measures the traffic, which takes
    20 ms a direction. `counts_pcie` is what an earlier load of the GPU reported: asking an H200 for PCIe
    counters takes CPU at every look, for 32 bits that cannot be used.
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
            rate = ask(name, lambda way=way: nvml.nvmlDeviceGetPcieThroughput(handle, way))  # type: ignore[misc]
            values[name] = None if rate is None else rate * _PCIE_KIB
    return GpuLoad(values, counters, ask.unknown)


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
    """Read what changes rarely or costs more; `unknown` are the reasons found with the load."""
    ask = _Asker(nvml)
    mig = ask("mig", lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    limit = ask("power_limit_w", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))

    def errors(name: str, kind: Any) -> int | None:
        return ask(name, lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC))

    return GpuDetails(
        age_s=0.0,
        processes=_processes(ask, handle),
        mig=None if mig is None else bool(mig),
        instances=tuple(_instances(ask, handle)) if mig else (),
        ecc_corrected=errors("ecc_corrected", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ecc_uncorrected=errors("ecc_uncorrected", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
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
    return tuple(
        name_process(pid, None if used is None else used / MIB) for pid, used in sorted(found.items())
    )


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
        del memory["memory_reserved_mib"]
        yield MigInstance(uuid=uuid, **memory)


class Xids:
    """Receives XID errors from the moment it is made."""

    def __init__(self, nvml: Any, devices: tuple[Device, ...]) -> None:
        self._nvml = nvml
        self._set = nvml.nvmlEventSetCreate()
        self._uuids: set[str] = set()
        for device in devices:
            try:
                nvml.nvmlDeviceRegisterEvents(device.handle, nvml.nvmlEventTypeXidCriticalError, self._set)
            except _errors(nvml):
                continue
            if device.uuid is not None:
                self._uuids.add(device.uuid)

    def poll(self) -> dict[str, tuple[int, ...]]:
        """Return the errors since the last call by UUID; GPUs whose errors cannot be read are left out."""
        found: dict[str, tuple[int, ...]] = dict.fromkeys(self._uuids, ())
        while self._uuids:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
                uuid = self._nvml.nvmlDeviceGetUUID(event.device)
            except _errors(self._nvml):  # a timeout: there is none left
                break
            found[uuid] = (*found.get(uuid, ()), int(event.eventData))
        return found

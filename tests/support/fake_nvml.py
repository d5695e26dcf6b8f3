"""Stand in for the module pynvml: a machine whose GPUs answer, fail, hang or vanish as a test says."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace
from typing import Any

MIB = 2**20

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, TIMEOUT = 3, 4, 6, 10
LIBRARY_NOT_FOUND, LOST, MISMATCH = 12, 15, 18
_SAID = {
    NOT_SUPPORTED: "Not Supported",
    NO_PERMISSION: "Insufficient Permissions",
    NOT_FOUND: "Not Found",
    TIMEOUT: "Timeout",
    LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    LOST: "GPU is lost",
    MISMATCH: "RM has detected an NVML/RM version mismatch.",
}


class NVMLError(Exception):
    """An error as pynvml raises it."""

    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__(value)

    def __str__(self) -> str:
        return _SAID[self.value]


def memory(total: float, used: float, reserved: float = 0.0, free: float | None = None) -> SimpleNamespace:
    """Return memory as NVML does, from MiB."""
    left = total - used - reserved if free is None else free
    return SimpleNamespace(total=total * MIB, used=used * MIB, reserved=reserved * MIB, free=left * MIB)


def counter(value: int) -> SimpleNamespace:
    """Return a field's value as NVML does: an unsigned long long."""
    return SimpleNamespace(nvmlReturn=0, valueType=3, value=SimpleNamespace(ullVal=value))


def no_counter() -> SimpleNamespace:
    """Return a field that the GPU does not have."""
    return SimpleNamespace(nvmlReturn=NOT_SUPPORTED, valueType=0, value=SimpleNamespace())


class FakeGpu:
    """One GPU; `answers` maps names of NVML functions, without `nvmlDeviceGet`, to what they give.

    An int in `fails` is the error that a function raises; a function in `hangs` waits for `release`.
    """

    def __init__(self, index: int, **answers: Any) -> None:
        self.index = index
        self.fails: dict[str, int] = {}
        self.hangs: set[str] = set()
        self.release = threading.Event()
        self.calls = 0
        self.lost = False
        self.instances: list[FakeGpu] = []
        self.answers: dict[str, Any] = {
            "UUID": f"GPU-{index:04d}",
            "Name": "NVIDIA H200",
            "UtilizationRates": SimpleNamespace(gpu=90 + index, memory=40),
            "PowerUsage": 650_000,
            "ClockInfo": 1980,
            "Temperature": 55,
            "MemoryInfo": memory(143771, 100000, 616),
            "FieldValues": [counter(0), counter(0), counter(0), counter(0)],
            "ComputeRunningProcesses": [SimpleNamespace(pid=99_000_000 + index, usedGpuMemory=512 * MIB)],
            "GraphicsRunningProcesses": [],
            "MigMode": [0, 0],
            "EnforcedPowerLimit": 700_000,
            "TotalEccErrors": 0,
            "PcieThroughput": 2048,
            "MaxMigDeviceCount": 7,
            **answers,
        }

    def answer(self, name: str, version: int | None = None) -> Any:
        self.calls += 1
        if self.lost:
            raise NVMLError(LOST)
        if name in self.hangs:
            self.release.wait(30)
        code = self.fails.get(name if version is None else f"{name}_v2")
        if code is not None:
            raise NVMLError(code)
        answer = self.answers[name]
        return next(answer) if isinstance(answer, itertools.count) else answer


class FakeNvml:
    """The module."""

    NVMLError = NVMLError
    nvmlMemory_v2 = 2
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_VOLATILE_ECC = 1, 2, 0, 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
    nvmlEventTypeXidCriticalError = 8

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.init_fails: int | None = None
        self.init_hangs = False
        self.release = threading.Event()
        self.inits = self.shutdowns = 0
        self.xids: list[tuple[FakeGpu, int]] = []

    def nvmlInit(self) -> None:
        self.inits += 1
        if self.init_hangs:
            self.release.wait(30)
        if self.init_fails is not None:
            raise NVMLError(self.init_fails)

    def nvmlShutdown(self) -> None:
        self.shutdowns += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        gpu = self.gpus[index]
        if gpu.lost:
            raise NVMLError(LOST)
        return gpu

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        for gpu in self.gpus:
            if gpu.answers["UUID"] == uuid and not gpu.lost:
                return gpu
        raise NVMLError(LOST)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, place: int) -> FakeGpu:
        if place >= len(gpu.instances):
            raise NVMLError(NOT_FOUND)
        return gpu.instances[place]

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, gpu: FakeGpu, kinds: int, events: object) -> None:
        gpu.answer("UUID")

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> SimpleNamespace:
        if not self.xids:
            raise NVMLError(TIMEOUT)
        gpu, xid = self.xids.pop(0)
        return SimpleNamespace(device=gpu, eventData=xid)

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu, version: int | None = None) -> Any:
        return gpu.answer("MemoryInfo", version)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        return lambda gpu, *rest: gpu.answer(name.removeprefix("nvmlDeviceGet"))


class Hands:
    """Clocks that a test moves by hand: `utc_s` and `monotonic_s`."""

    def __init__(self, utc_s: float = 1.7e9, monotonic_s: float = 100.0) -> None:
        self.utc_s, self.monotonic_s = utc_s, monotonic_s

    def pass_s(self, seconds: float) -> None:
        self.utc_s += seconds
        self.monotonic_s += seconds

"""Look at this machine through NVML, so that no GPU and no call can hold up the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from libra_plan.planner.telemetry.host import HostReader
from libra_plan.planner.telemetry.nvml_readings import (
    Device,
    GpuLost,
    Load,
    Xids,
    list_devices,
    open_device,
    read_details,
    read_load,
)
from libra_plan.planner.telemetry.rates import Rates
from libra_plan.planner.telemetry.sample import GpuDetails, GpuSample, GpuState, Sample
from libra_plan.planner.telemetry.sources import Clocks, Limits, apart, sample_of
from libra_plan.planner.telemetry.timeouts import Answer, Guard

__all__ = ["NvmlSource"]

_UNIFIED = "memory is not told; where GPU and host share one, host.memory_free_mib is what is free"
_NO_DRIVER = frozenset({9, 12})  # NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND
_NOT_SUPPORTED = "Not Supported"


@dataclass(eq=False)
class _Gpu:
    """What is remembered of a GPU from look to look."""

    device: Device
    guard: Guard[Any]
    rates: Rates = field(default_factory=Rates)
    good_s: float | None = None  # when the last good readings were taken
    counts_pcie: bool = True  # as the last load said
    details: GpuDetails | None = None
    details_s: float | None = None

    def due(self, now_s: float, every_s: float) -> bool:
        """Tell whether the details are to be read again."""
        return self.details_s is None or now_s - self.details_s >= every_s


class NvmlSource:
    """A live source over NVML.

    Each GPU has a thread of its own. What does not answer within `limits.look_s` has no readings in
    this sample, and is not asked again before it answers.
    """

    name = "nvml"
    live = True

    def __init__(self, nvml: Any, node: str, clocks: Clocks, limits: Limits | None = None) -> None:
        self._nvml = nvml
        self._node = node
        self._clocks = clocks
        self._limits = limits or Limits()
        self._host = HostReader()
        self._driver: Guard[tuple[Device, ...]] = Guard("nvml", clocks.monotonic_s)
        self._events: Guard[Any] = Guard("nvml-events", clocks.monotonic_s)
        self._gpus: list[_Gpu] = []
        self._xids: Xids | None = None
        self._fault: str | None = None
        self._no_driver = False
        self._try_s: float | None = None

    def absent(self) -> str | None:
        """Try to reach the driver; say why there is none on this machine, None where there is one."""
        self._connect()
        return self._fault if self._no_driver else None

    def read(self) -> tuple[Sample, ...]:
        """Look once, for at most twice `limits.look_s`, the first time `limits.start_s` longer."""
        if not self._gpus:
            self._connect()
        until_s = self._clocks.monotonic_s() + self._limits.look_s
        asked = [gpu.guard.start(partial(self._load, gpu)) for gpu in self._gpus]
        heard = self._events.ask(self._hear, self._limits.look_s) if self._gpus else None
        answers = [
            gpu.guard.wait(until_s) if started else None
            for gpu, started in zip(self._gpus, asked, strict=True)
        ]
        self._read_details(answers)
        now_s = self._clocks.monotonic_s()
        xids: Mapping[str, tuple[int, ...]] = {} if heard is None else heard.value or {}
        gpus = [
            self._sample(gpu, answer, now_s, xids) for gpu, answer in zip(self._gpus, answers, strict=True)
        ]
        return (
            sample_of(
                self,
                self._clocks,
                self._node,
                now_s,
                apart(gpus),
                host=self._host.read(now_s),
                fault=self._fault,
            ),
        )

    def close(self) -> None:
        """Leave NVML, unless a call to it hangs: then leaving would hang too."""
        guards = [self._driver, self._events, *(gpu.guard for gpu in self._gpus)]
        if self._gpus and not any(guard.stuck for guard in guards):
            self._events.ask(self._nvml.nvmlShutdown, self._limits.look_s)
        for guard in guards:
            guard.close()
        self._gpus = []

    def _connect(self) -> None:
        now_s = self._clocks.monotonic_s()
        if self._try_s is not None and now_s - self._try_s < self._limits.retry_s:
            return
        self._try_s = now_s
        answer = self._driver.ask(self._begin, self._limits.start_s)
        if answer is None:
            self._fault = f"NVML does not answer within {self._limits.start_s:g} s"
        elif answer.value is None:
            self._fault = f"NVML: {answer.error}"
            self._no_driver = getattr(answer.error, "value", None) in _NO_DRIVER
        else:
            self._fault = None if answer.value else "NVML knows no GPU here"
            self._gpus = [
                _Gpu(device, Guard(f"gpu-{device.index}", self._clocks.monotonic_s))
                for device in answer.value
            ]

    def _begin(self) -> tuple[Device, ...]:
        self._nvml.nvmlInit()
        return list_devices(self._nvml)

    def _hear(self) -> dict[str, tuple[int, ...]]:
        if self._xids is None:
            self._xids = Xids(self._nvml, tuple(gpu.device for gpu in self._gpus))
        return self._xids.poll()

    def _load(self, gpu: _Gpu) -> Load:
        """Read the load; runs in the GPU's own thread."""
        if gpu.device.handle is None:
            gpu.device = open_device(self._nvml, gpu.device.index, gpu.device.uuid)
            if gpu.device.handle is None:
                raise GpuLost(gpu.device.why)
        try:
            with_pcie = gpu.due(self._clocks.monotonic_s(), self._limits.details_s)
            load = read_load(self._nvml, gpu.device.handle, with_pcie, gpu.counts_pcie)
        except GpuLost as lost:
            gpu.device = replace(gpu.device, handle=None, why=str(lost))
            raise
        gpu.counts_pcie = load.counts_pcie
        return load

    def _read_details(self, answers: list[Answer[Any] | None]) -> None:
        """Read the details of GPUs that just answered and are due; slow ones lose only their details."""
        now_s = self._clocks.monotonic_s()
        due = []
        for gpu, answer in zip(self._gpus, answers, strict=True):
            if answer is None or answer.value is None or not gpu.due(now_s, self._limits.details_s):
                continue
            due.append(gpu)
            gpu.guard.start(partial(read_details, self._nvml, gpu.device.handle, answer.value.unknown))
        for gpu in due:
            told = gpu.guard.wait(now_s + self._limits.look_s)
            if told is not None and told.value is not None:
                gpu.details, gpu.details_s = told.value, told.at_s

    def _sample(
        self,
        gpu: _Gpu,
        answer: Answer[Any] | None,
        now_s: float,
        xids: Mapping[str, tuple[int, ...]],
    ) -> GpuSample:
        device = gpu.device
        state, why = self._state(answer)
        values: dict[str, float | None] = {}
        if answer is not None and state is GpuState.OK:
            load = _load_of(answer)
            gpu.good_s = answer.at_s
            values = {name: _rounded(value) for name, value in load.values.items()}
            for name, rate in gpu.rates.next(load.counters, answer.at_s).items():
                if values.get(name) is None:
                    values[name] = None if rate is None else round(rate)
        details = None
        if gpu.details is not None and gpu.details_s is not None and state is GpuState.OK:
            details = msgspec.structs.replace(gpu.details, age_s=round(now_s - gpu.details_s, 3))
        return GpuSample(
            uuid=device.uuid,
            index=device.index,
            name=device.name,
            state=state,
            why=why,
            age_s=None if gpu.good_s is None else round(now_s - gpu.good_s, 3),
            xids=None if device.uuid is None else xids.get(device.uuid),
            details=details,
            **values,
        )

    def _state(self, answer: Answer[Any] | None) -> tuple[GpuState, str | None]:
        if answer is None:
            return GpuState.LATE, f"no answer within {self._limits.look_s:g} s"
        if isinstance(answer.error, GpuLost):
            return GpuState.LOST, str(answer.error)
        if answer.error is not None:
            return GpuState.UNREADABLE, f"{type(answer.error).__name__}: {answer.error}"
        load = _load_of(answer)
        if all(value is None for value in load.values.values()):
            return GpuState.UNREADABLE, next(iter(load.unknown.values()), None)
        if load.unknown.get("memory_total_mib") == _NOT_SUPPORTED:
            return GpuState.OK, _UNIFIED
        return GpuState.OK, None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _load_of(answer: Answer[Any]) -> Load:
    """Take the load out of an answer that is no error."""
    load = answer.value
    if not isinstance(load, Load):
        raise TypeError(f"not a load: {load!r}")
    return load

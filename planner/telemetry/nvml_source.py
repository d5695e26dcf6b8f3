"""Read this machine through NVML, so that no GPU and no call can delay the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import msgspec

from libra_plan.planner.telemetry.host import HostReader, Rates
from libra_plan.planner.telemetry.nvml import (
    Device,
    GpuLoad,
    GpuLost,
    Xids,
    list_devices,
    open_device,
    read_details,
    read_load,
)
from libra_plan.planner.telemetry.sample import GpuDetails, GpuSample, GpuState, NodeSample
from libra_plan.planner.telemetry.sources import Clocks, SourceTimeouts, sample_of, without_duplicates
from libra_plan.planner.telemetry.timeouts import CallResult, TimedCalls

__all__ = ["NvmlSource"]

_UNIFIED = "memory is not reported; where GPU and host share one, host.memory_free_mib is what is free"
_NO_DRIVER = frozenset({9, 12})  # NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND
_NOT_SUPPORTED = "Not Supported"


@dataclass(eq=False)
class _Gpu:
    """The state of a GPU between looks."""

    device: Device
    calls: TimedCalls[Any]
    rates: Rates = field(default_factory=Rates)
    good_s: float | None = None  # when the last good readings were taken
    counts_pcie: bool = True  # as the last load reported
    details: GpuDetails | None = None
    details_s: float | None = None

    def due(self, now_s: float, every_s: float) -> bool:
        """Whether the details are due to be read again."""
        return self.details_s is None or now_s - self.details_s >= every_s


class NvmlSource:
    """A live source over NVML.

    Each GPU has a thread of its own. A GPU that does not answer within `timeouts.look_s` has no
    readings in this sample, and is not asked again before it answers.
    """

    name = "nvml"
    live = True

    def __init__(self, nvml: Any, node: str, clocks: Clocks, timeouts: SourceTimeouts | None = None) -> None:
        self._nvml = nvml
        self._node = node
        self._clocks = clocks
        self._timeouts = timeouts or SourceTimeouts()
        self._host = HostReader()
        self._driver: TimedCalls[tuple[Device, ...]] = TimedCalls("nvml", clocks.monotonic_s)
        self._events: TimedCalls[Any] = TimedCalls("nvml-events", clocks.monotonic_s)
        self._gpus: list[_Gpu] = []
        self._xids: Xids | None = None
        self._fault: str | None = None
        self._no_driver = False
        self._try_s: float | None = None

    def absent(self) -> str | None:
        """Try to reach the driver; return why this machine has none, None where it has one."""
        self._connect()
        return self._fault if self._no_driver else None

    def read(self) -> tuple[NodeSample, ...]:
        """Sample once, for at most twice `look_s`; the first look may take `start_s` longer."""
        if not self._gpus:
            self._connect()
        look_s = self._timeouts.look_s
        until_s = self._clocks.monotonic_s() + look_s
        started = [gpu.calls.start(partial(self._load, gpu)) for gpu in self._gpus]
        events = self._events.ask(self._poll_xids, look_s) if self._gpus else None
        results = [
            gpu.calls.wait(until_s) if own else None for gpu, own in zip(self._gpus, started, strict=True)
        ]
        self._read_details(results)
        now_s = self._clocks.monotonic_s()
        xids: Mapping[str, tuple[int, ...]] = {} if events is None else events.value or {}
        gpus = [self._sample(gpu, own, now_s, xids) for gpu, own in zip(self._gpus, results, strict=True)]
        host = self._host.read(now_s)
        gpus = list(without_duplicates(gpus))
        return (sample_of(self, self._clocks, self._node, now_s, gpus, host=host, fault=self._fault),)

    def close(self) -> None:
        """Shut NVML down, unless a call to it hangs: then shutting down would hang, too."""
        everything = [self._driver, self._events, *(gpu.calls for gpu in self._gpus)]
        if self._gpus and not any(calls.stuck for calls in everything):
            self._events.ask(self._nvml.nvmlShutdown, self._timeouts.look_s)
        for calls in everything:
            calls.close()
        self._gpus = []

    def _connect(self) -> None:
        now_s = self._clocks.monotonic_s()
        if self._try_s is not None and now_s - self._try_s < self._timeouts.retry_s:
            return
        self._try_s = now_s
        result = self._driver.ask(self._begin, self._timeouts.start_s)
        if result is None:
            self._fault = f"NVML does not answer within {self._timeouts.start_s:g} s"
        elif result.value is None:
            self._fault = f"NVML: {result.error}"
            self._no_driver = getattr(result.error, "value", None) in _NO_DRIVER
        else:
            self._fault = None if result.value else "NVML lists no GPU here"
            self._gpus = [
                _Gpu(device, TimedCalls(f"gpu-{device.index}", self._clocks.monotonic_s))
                for device in result.value
            ]

    def _begin(self) -> tuple[Device, ...]:
        self._nvml.nvmlInit()
        return list_devices(self._nvml)

    def _poll_xids(self) -> dict[str, tuple[int, ...]]:
        if self._xids is None:
            self._xids = Xids(self._nvml, tuple(gpu.device for gpu in self._gpus))
        return self._xids.poll()

    def _load(self, gpu: _Gpu) -> GpuLoad:
        """Read the load; runs in the GPU's own thread."""
        if gpu.device.handle is None:
            gpu.device = open_device(self._nvml, gpu.device.index, gpu.device.uuid)
            if gpu.device.handle is None:
                raise GpuLost(gpu.device.why)
        try:
            with_pcie = gpu.due(self._clocks.monotonic_s(), self._timeouts.details_s)
            load = read_load(self._nvml, gpu.device.handle, with_pcie, gpu.counts_pcie)
        except GpuLost as lost:
            gpu.device = replace(gpu.device, handle=None, why=str(lost))
            raise
        gpu.counts_pcie = load.counts_pcie
        return load

    def _read_details(self, results: list[CallResult[Any] | None]) -> None:
        """Read the details of GPUs that just answered and are due; slow ones lose only their details."""
        now_s = self._clocks.monotonic_s()
        due = []
        for gpu, result in zip(self._gpus, results, strict=True):
            if result is None or result.value is None or not gpu.due(now_s, self._timeouts.details_s):
                continue
            due.append(gpu)
            gpu.calls.start(partial(read_details, self._nvml, gpu.device.handle, result.value.unknown))
        for gpu in due:
            details = gpu.calls.wait(now_s + self._timeouts.look_s)
            if details is not None and details.value is not None:
                gpu.details, gpu.details_s = details.value, details.at_s

    def _sample(
        self,
        gpu: _Gpu,
        result: CallResult[Any] | None,
        now_s: float,
        xids: Mapping[str, tuple[int, ...]],
    ) -> GpuSample:
        device, details = gpu.device, None
        state, why = self._state(result)
        values: dict[str, float | None] = {}
        if result is not None and state is GpuState.OK:
            load = cast(GpuLoad, result.value)
            gpu.good_s = result.at_s
            values = {name: None if each is None else round(each, 2) for name, each in load.values.items()}
            for name, rate in gpu.rates.next(load.counters, result.at_s).items():
                if values.get(name) is None:
                    values[name] = None if rate is None else round(rate)
            if gpu.details is not None and gpu.details_s is not None:
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

    def _state(self, result: CallResult[Any] | None) -> tuple[GpuState, str | None]:
        if result is None:
            return GpuState.LATE, f"no answer within {self._timeouts.look_s:g} s"
        if isinstance(result.error, GpuLost):
            return GpuState.LOST, str(result.error)
        if result.error is not None:
            return GpuState.UNREADABLE, f"{type(result.error).__name__}: {result.error}"
        load = cast(GpuLoad, result.value)
        if all(value is None for value in load.values.values()):
            return GpuState.UNREADABLE, next(iter(load.unknown.values()), None)
        unified = load.unknown.get("memory_total_mib") == _NOT_SUPPORTED
        return GpuState.OK, _UNIFIED if unified else None

"""Simulated GPUs that repeat the steps of an RL task, for trials and tests."""

from __future__ import annotations

import random
from typing import Any

from libra_plan.planner.telemetry.sample import GpuDetails, GpuSample, HostSample, NodeSample, ProcessUse
from libra_plan.planner.telemetry.sources import Clocks, sample_of

__all__ = ["SimulatedSource"]

_TOTAL_MIB = 143771.0  # an H200 as the driver reports it
_RESERVED_MIB = 616.0
_STEP_S = 90.0
_ROLLOUT = 0.7  # share of a step; its tail leaves GPUs ever emptier
_PROCESS = 1000


class SimulatedSource:
    """A live source of simulated GPUs; each step is a rollout with a long tail, then training."""

    name = "simulated"
    live = True

    def __init__(self, gpus: int, node: str, clocks: Clocks, rng: random.Random) -> None:
        self._node = node
        self._clocks = clocks
        self._rng = rng
        self._uuids = [f"GPU-simulated-{index:04d}" for index in range(gpus)]
        self._began_s: float | None = None

    def read(self) -> tuple[NodeSample, ...]:
        """Return one simulated look."""
        now_s = self._clocks.monotonic_s()
        if self._began_s is None:
            self._began_s = now_s
        step = (now_s - self._began_s) % _STEP_S / _STEP_S
        host = self._host()
        gpus = [self._gpu(index, uuid, step) for index, uuid in enumerate(self._uuids)]
        return (sample_of(self, self._clocks, self._node, now_s, gpus, host=host),)

    def close(self) -> None:
        """Do nothing, since nothing is held."""

    def _host(self) -> HostSample:
        used = round(self._rng.uniform(200e3, 220e3))
        return HostSample(
            cpu_percent=round(self._rng.uniform(20, 40), 1),
            cpu_cores=128,
            memory_total_mib=2048e3,
            memory_used_mib=used,
            memory_free_mib=2048e3 - used,
            **self._traffic("network", 1e6),
        )

    def _traffic(self, link: str, rate: float) -> dict[str, Any]:
        """Return a traffic of `rate` to twice that, bytes/s, in both directions."""
        return {f"{link}_{way}_bytes_per_s": round(rate * self._rng.uniform(1, 2)) for way in ("tx", "rx")}

    def _gpu(self, index: int, uuid: str, step: float) -> GpuSample:
        rollout = step < _ROLLOUT
        ends = _ROLLOUT * (index + 1) / len(self._uuids)  # the longest trajectories are on the last GPU
        busy = (step < ends) if rollout else True
        utilization = round(self._rng.uniform(85, 100)) if busy else 0.0
        memory = round(_TOTAL_MIB * (0.88 if rollout else 0.71) + self._rng.uniform(0, 64), 2)
        return GpuSample(
            uuid=uuid,
            index=index,
            name="NVIDIA H200",
            age_s=0.0,
            utilization_percent=utilization,
            memory_busy_percent=round(utilization * 0.6),
            memory_total_mib=_TOTAL_MIB,
            memory_used_mib=memory,
            memory_free_mib=round(_TOTAL_MIB - _RESERVED_MIB - memory, 2),
            memory_reserved_mib=_RESERVED_MIB,
            power_w=round(90 + 6 * utilization + self._rng.uniform(-5, 5), 2),
            sm_clock_mhz=1980 if busy else 345,
            memory_clock_mhz=3201,
            temperature_c=round(30 + 0.3 * utilization),
            **self._traffic("nvlink", 0.0 if rollout else 1e11),
            **self._traffic("pcie", 1e6),
            xids=(),
            details=GpuDetails(
                age_s=0.0,
                processes=(ProcessUse(pid=_PROCESS + index, name="python", used_mib=memory - 500),),
                mig=False,
                ecc_corrected=0,
                ecc_uncorrected=0,
                power_limit_w=700.0,
            ),
        )

"""Facts about the GPU, its driver and the host; None where unknown."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from libra_plan.profiles.units import MIB

__all__ = ["NvmlFacts", "cpu_name", "read_nvml"]


@dataclass(frozen=True)
class NvmlFacts:
    """NVML's view of one GPU."""

    name: str | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    memory_total_mib: float | None = None
    memory_used_mib: float | None = None
    mig: bool | None = None
    other_processes: int | None = None


def read_nvml(uuid: str | None, load: Callable[[str], Any] = import_module) -> NvmlFacts:
    """Read facts about the GPU with this UUID from NVML; all are None without pynvml or a driver."""
    try:
        nvml = load("pynvml")
        nvml.nvmlInit()
    except Exception:  # no library, no driver or no permission: NVML cannot be read
        return NvmlFacts()
    with contextlib.ExitStack() as left:
        left.callback(_ask, nvml.nvmlShutdown)
        handle = _ask(lambda: nvml.nvmlDeviceGetHandleByUUID(uuid)) if uuid else None
        if handle is None:
            return NvmlFacts(driver=_text(_ask(nvml.nvmlSystemGetDriverVersion)))
        memory = _ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        limit = _ask(lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle))
        mig = _ask(lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
        processes = _ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        return NvmlFacts(
            name=_text(_ask(lambda: nvml.nvmlDeviceGetName(handle))),
            driver=_text(_ask(nvml.nvmlSystemGetDriverVersion)),
            power_limit_w=None if limit is None else limit / 1000,
            memory_total_mib=None if memory is None else round(memory.total / MIB, 1),
            memory_used_mib=None if memory is None else round(memory.used / MIB, 1),
            mig=None if mig is None else bool(mig),
            other_processes=None if processes is None else sum(p.pid != os.getpid() for p in processes),
        )


def _ask(question: Callable[[], Any]) -> Any:
    """Return NVML's answer, or None: a GPU may support any subset of the questions."""
    try:
        return question()
    except Exception:  # pynvml raises its own type per return code
        return None


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode() if isinstance(value, bytes) else str(value)


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Name the processor as Linux shows it, else as the platform does."""
    try:
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip() or None
    except OSError:
        pass
    return platform.processor() or None

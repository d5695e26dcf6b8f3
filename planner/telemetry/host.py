"""CPU, memory and network of this host, and the processes behind the pids that a GPU driver lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

import psutil

from libra_plan.planner.telemetry.sample import HostSample, ProcessUse
from libra_plan.profiles.units import MIB

__all__ = ["HostReader", "Rates", "name_process", "sees_host_pids"]

T = TypeVar("T")

_PROC = Path("/proc")
_INITIAL_PIDS = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel: the namespace of the host
_DEVICE = "/dev/nvidia"


class Rates:
    """Turns counters that only grow into rates per second of the monotonic clock.

    A counter that fell was reset (driver reloaded, counter wrapped), so that interval has no rate.
    Neither has the first interval, one without duration, or one with an unknown end.
    """

    def __init__(self) -> None:
        self._last: Mapping[str, int | None] = {}
        self._last_s: float | None = None

    def next(self, counters: Mapping[str, int | None], at_s: float) -> dict[str, float | None]:
        """Return the mean rate of each counter since the last call."""
        elapsed_s = 0.0 if self._last_s is None else at_s - self._last_s
        rates: dict[str, float | None] = {}
        for name, now in counters.items():
            before = self._last.get(name)
            known = before is not None and now is not None and now >= before and elapsed_s > 0
            rates[name] = (now - before) / elapsed_s if known else None  # type: ignore[operator]
        self._last, self._last_s = dict(counters), at_s
        return rates


class HostReader:
    """Reads the host; CPU and network are means since the last reading, so the first has none."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._read_before = False
        self._cores = psutil.cpu_count(logical=True)

    def read(self, at_s: float) -> HostSample:
        """Read everything; `at_s` is on the monotonic clock."""
        busy = _ask(lambda: psutil.cpu_percent(interval=None))
        memory = _ask(psutil.virtual_memory)
        rates = self._rates.next(_network(), at_s)
        first, self._read_before = not self._read_before, True
        return HostSample(
            cpu_percent=None if first else busy,
            cpu_cores=self._cores,
            memory_total_mib=None if memory is None else round(memory.total / MIB, 1),
            memory_used_mib=None if memory is None else round(memory.used / MIB, 1),
            memory_free_mib=None if memory is None else round(memory.available / MIB, 1),
            network_tx_bytes_per_s=None if rates["tx"] is None else round(rates["tx"]),
            network_rx_bytes_per_s=None if rates["rx"] is None else round(rates["rx"]),
        )


def _network() -> dict[str, int | None]:
    """Count the bytes of all interfaces but loopback."""
    each = _ask(lambda: psutil.net_io_counters(pernic=True)) or {}
    real = [counters for name, counters in each.items() if name != "lo"]
    if not real:
        return {"tx": None, "rx": None}
    return {"tx": sum(each.bytes_sent for each in real), "rx": sum(each.bytes_recv for each in real)}


def _ask(read: Callable[[], T]) -> T | None:
    """Call a reader; return None where a container has no such file, or one of another form."""
    try:
        return read()
    except (psutil.Error, OSError, ValueError, LookupError, RuntimeError):
        return None


def name_process(pid: int, used_mib: float | None, proc: Path = _PROC) -> ProcessUse:
    """Look up a process that the driver lists, and its pid in its own container.

    The driver lists pids of the host. In a container the same number may be another process, so it is
    only taken for the listed one if it has an NVIDIA device open.
    """
    unseen = ProcessUse(pid=pid, used_mib=used_mib)
    if not sees_host_pids(proc) and not _has_device(pid, proc):
        return unseen
    try:
        process = psutil.Process(pid)
        return ProcessUse(
            pid=pid,
            container_pid=_innermost_pid(pid, proc),
            name=process.name(),
            started_utc=datetime.fromtimestamp(process.create_time(), timezone.utc),
            used_mib=used_mib,
        )
    except (psutil.Error, OSError, ValueError, IndexError):
        return unseen


def sees_host_pids(proc: Path = _PROC) -> bool:
    """Whether pids here are the host's."""
    try:
        return str((proc / "self" / "ns" / "pid").readlink()) == _INITIAL_PIDS
    except OSError:
        return False


def _has_device(pid: int, proc: Path) -> bool:
    try:
        return any(str(each.readlink()).startswith(_DEVICE) for each in (proc / str(pid) / "fd").iterdir())
    except OSError:
        return False


def _innermost_pid(pid: int, proc: Path) -> int | None:
    """Return the pid in the innermost namespace, None where that is this one."""
    for line in (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("NSpid:"):
            own = int(line.split()[-1])
            return None if own == pid else own
    return None

"""CPU, memory and network of this host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psutil

from libra_plan.planner.telemetry.rates import Rates
from libra_plan.planner.telemetry.sample import HostSample
from libra_plan.profiles.units import MIB

__all__ = ["HostReader"]

T = TypeVar("T")


class HostReader:
    """Reads the host; CPU and network are means since the last reading, so the first has none."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._read_before = False
        self._cores = psutil.cpu_count(logical=True)

    def read(self, at_s: float) -> HostSample:
        """Read everything; `at_s` on the monotonic clock."""
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
            network_tx_bytes_per_s=_rounded(rates["tx"]),
            network_rx_bytes_per_s=_rounded(rates["rx"]),
        )


def _network() -> dict[str, int | None]:
    """Count the bytes of all interfaces but loopback."""
    each = _ask(lambda: psutil.net_io_counters(pernic=True)) or {}
    real = [counters for name, counters in each.items() if name != "lo"]
    if not real:
        return {"tx": None, "rx": None}
    return {"tx": sum(each.bytes_sent for each in real), "rx": sum(each.bytes_recv for each in real)}


def _ask(read: Callable[[], T]) -> T | None:
    """Read; None where a container shows no such file, or one of another form."""
    try:
        return read()
    except (psutil.Error, OSError, ValueError, LookupError, RuntimeError):
        return None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value)

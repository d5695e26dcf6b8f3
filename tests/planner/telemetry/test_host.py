"""The host, where it shows itself and where it does not."""

from __future__ import annotations

import psutil

from libra_plan.planner.telemetry.host import HostReader
from libra_plan.planner.telemetry.sample import HOST_READINGS


def test_a_host_that_shows_nothing_is_unknown(monkeypatch):
    """Some containers hide /proc; then there is no CPU and no memory to tell, and no 0 either."""

    def hidden(*_, **__):
        raise FileNotFoundError

    reader = HostReader()
    reader.read(1.0)
    for name in ("cpu_percent", "virtual_memory", "net_io_counters"):
        monkeypatch.setattr(psutil, name, hidden)
    seen = reader.read(2.0)
    assert all(getattr(seen, name) is None for name in HOST_READINGS)


def test_the_first_look_at_the_host_has_no_rates():
    """The library gives 0.0 for CPU on the first call; that is no reading."""
    reader = HostReader()
    first, second = reader.read(1.0), reader.read(2.0)
    assert first.cpu_percent is None
    assert first.network_rx_bytes_per_s is None
    assert second.cpu_percent is not None
    assert second.memory_total_mib >= second.memory_free_mib > 0

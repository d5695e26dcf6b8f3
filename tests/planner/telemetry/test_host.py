"""The host: known where it can be, never guessed; who a pid is; rates of counters."""

from __future__ import annotations

import math
import os
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.planner.telemetry import host
from libra_plan.planner.telemetry.host import HostReader, Rates, name_process, sees_host_pids
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


@pytest.fixture
def proc(tmp_path):
    """Make a /proc in which this process is listed; the namespace is what a test makes it."""

    def make(namespace, device=None, nspid=None):
        own = tmp_path / str(os.getpid())
        (own / "fd").mkdir(parents=True)
        (tmp_path / "self" / "ns").mkdir(parents=True)
        (tmp_path / "self" / "ns" / "pid").symlink_to(f"pid:[{namespace}]")
        if device is not None:
            (own / "fd" / "3").symlink_to(device)
        pids = nspid or f"{os.getpid()}"
        (own / "status").write_text(f"Name:\tpython\nNSpid:\t{pids}\n", encoding="utf-8")
        return tmp_path

    return make


def test_on_the_host_a_pid_has_name_start_and_its_pid_in_its_container(proc):
    """The user knows the container's pid, the driver the host's."""
    seen = name_process(os.getpid(), 5.0, proc(4026531836, nspid=f"{os.getpid()}\t17"))
    assert (seen.pid, seen.container_pid, seen.used_mib) == (os.getpid(), 17, 5.0)
    assert seen.name
    assert seen.started_utc is not None
    assert seen.started_utc.tzinfo is not None


def test_in_a_container_another_process_with_the_number_is_not_taken_for_it(proc):
    """A044: the driver tells the host's pid 300; pid 300 in here is a shell."""
    seen = name_process(os.getpid(), 5.0, proc(4026532000))
    assert (seen.name, seen.started_utc, seen.container_pid) == (None, None, None)
    assert (seen.pid, seen.used_mib) == (os.getpid(), 5.0)


def test_in_a_container_a_process_with_a_gpu_open_is_the_one(proc):
    """Newer drivers translate pids; then the process can be named."""
    assert name_process(os.getpid(), None, proc(4026532000, device="/dev/nvidia0")).name


def test_a_process_that_is_gone_is_unknown(proc):
    """Between the driver's list and ours it may have ended."""
    seen = name_process(2**30, None, proc(4026531836))
    assert (seen.pid, seen.name) == (2**30, None)


def test_no_proc_is_no_error(tmp_path):
    """Some sandboxes have none."""
    assert sees_host_pids(tmp_path / "none") is False
    assert name_process(1, None, tmp_path / "none").name is None
    assert Path("/proc") == host._PROC


@given(st.lists(st.tuples(st.integers(0, 10**15), st.floats(0, 100)), min_size=1, max_size=50))
def test_no_rate_is_negative_or_without_duration(steps):
    """Counters fall and clocks stand still; a rate is told only where both went on."""
    rates, at_s, before = Rates(), 0.0, None
    for value, gap_s in steps:
        at_s += gap_s
        rate = rates.next({"bytes": value}, at_s)["bytes"]
        known = before is not None and value >= before[0] and at_s > before[1]
        assert (rate is not None) == known
        if known:
            assert math.isclose(rate, (value - before[0]) / (at_s - before[1]))
        before = value, at_s


def test_a_rate_needs_both_ends():
    """A counter that was unknown in between gives no rate over a time nobody knows."""
    rates = Rates()
    assert [rates.next({"b": each}, float(at))["b"] for at, each in enumerate((0, None, 10, 12))] == [
        None,
        None,
        None,
        2.0,
    ]

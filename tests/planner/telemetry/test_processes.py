"""Who a pid is: known where it can be, never guessed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from libra_plan.planner.telemetry import processes
from libra_plan.planner.telemetry.processes import resolve, sees_host_pids


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
    seen = resolve(os.getpid(), 5.0, proc(4026531836, nspid=f"{os.getpid()}\t17"))
    assert (seen.pid, seen.container_pid, seen.used_mib) == (os.getpid(), 17, 5.0)
    assert seen.name
    assert seen.started_utc is not None
    assert seen.started_utc.tzinfo is not None


def test_in_a_container_another_process_with_the_number_is_not_taken_for_it(proc):
    """A044: the driver tells the host's pid 300; pid 300 in here is a shell."""
    seen = resolve(os.getpid(), 5.0, proc(4026532000))
    assert (seen.name, seen.started_utc, seen.container_pid) == (None, None, None)
    assert (seen.pid, seen.used_mib) == (os.getpid(), 5.0)


def test_in_a_container_a_process_with_a_gpu_open_is_the_one(proc):
    """Newer drivers translate pids; then the process can be named."""
    assert resolve(os.getpid(), None, proc(4026532000, device="/dev/nvidia0")).name


def test_a_process_that_is_gone_is_unknown(proc):
    """Between the driver's list and ours it may have ended."""
    seen = resolve(2**30, None, proc(4026531836))
    assert (seen.pid, seen.name) == (2**30, None)


def test_no_proc_is_no_error(tmp_path):
    """Some sandboxes have none."""
    assert sees_host_pids(tmp_path / "none") is False
    assert resolve(1, None, tmp_path / "none").name is None
    assert Path("/proc") == processes._PROC

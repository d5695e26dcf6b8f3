"""Wait for, end and keep apart real processes in tests, on machines as busy as they may be."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

PATIENCE_S = 90.0  # what comes about in a moment may take this long on a busy machine


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def end(*processes: psutil.Process) -> None:
    """Kill processes, of which some may have ended by themselves."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=PATIENCE_S)


def words_of(processes: Iterable[psutil.Process]) -> list[str]:
    """Return the command lines of those that run; one that ends at this moment has none."""
    found = []
    for process in processes:
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found


def free_ports(count: int = 40) -> tuple[int, int]:
    """Find a run of at most 50 free ports, below those that the system gives out.

    Each process looks in places of its own first, so that tests beside each other do not meet.
    """
    for turn in range(200):
        first = 20000 + (os.getpid() + turn) % 200 * 50
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("", port))
            return first, first + count - 1
    raise AssertionError("no free ports")

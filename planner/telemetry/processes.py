"""Who a pid that the driver tells belongs to, where that can be seen from here."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import psutil

from libra_plan.planner.telemetry.sample import ProcessUse

__all__ = ["resolve", "sees_host_pids"]

_PROC = Path("/proc")
_INITIAL_PIDS = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel: the namespace of the host
_DEVICE = "/dev/nvidia"


def resolve(pid: int, used_mib: float | None, proc: Path = _PROC) -> ProcessUse:
    """Name a process and its pid in its own container.

    The driver tells pids of the host. In a container the same number may be another process; it is
    only believed to be the one if it has an NVIDIA device open.
    """
    unseen = ProcessUse(pid=pid, used_mib=used_mib)
    if not sees_host_pids(proc) and not _has_device(pid, proc):
        return unseen
    try:
        process = psutil.Process(pid)
        return ProcessUse(
            pid=pid,
            container_pid=_innermost(pid, proc),
            name=process.name(),
            started_utc=datetime.fromtimestamp(process.create_time(), timezone.utc),
            used_mib=used_mib,
        )
    except (psutil.Error, OSError, ValueError, IndexError):
        return unseen


def sees_host_pids(proc: Path = _PROC) -> bool:
    """Tell whether pids here are the host's."""
    try:
        return str((proc / "self" / "ns" / "pid").readlink()) == _INITIAL_PIDS
    except OSError:
        return False


def _has_device(pid: int, proc: Path) -> bool:
    try:
        return any(str(each.readlink()).startswith(_DEVICE) for each in (proc / str(pid) / "fd").iterdir())
    except OSError:
        return False


def _innermost(pid: int, proc: Path) -> int | None:
    """Give the pid in the innermost namespace, None where that is this one."""
    for line in (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("NSpid:"):
            own = int(line.split()[-1])
            return None if own == pid else own
    return None

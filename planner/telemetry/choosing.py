"""Make the source that a user named."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.nvml import load_library
from libra_plan.planner.telemetry.nvml_source import NvmlSource
from libra_plan.planner.telemetry.smi import SmiSource, find_smi
from libra_plan.planner.telemetry.sources import Clocks, Limits, Source

__all__ = ["source_of"]

_NAMES = (
    "auto, nvml, smi, simulated, simulated:N, a recording, http://NODE:9400/metrics, http://PROMETHEUS:9090"
)
_MOST_SIMULATED = 100_000


def source_of(
    name: str,
    clocks: Clocks,
    limits: Limits,
    load: Callable[[], Any] = load_library,
    find: Callable[[], str | None] = find_smi,
) -> Source:
    """Make a source: of this machine, a simulation (`simulated:N` GPUs), a recording or a URL."""
    if name in ("auto", "nvml", "smi"):
        return _local(name, clocks, limits, load, find)
    kind, _, number = name.partition(":")
    if kind == "simulated" and (number.isdecimal() or not number) and int(number or 8) <= _MOST_SIMULATED:
        from libra_plan.planner.telemetry.simulated import SimulatedSource

        return SimulatedSource(int(number or 8), socket.gethostname(), clocks, random.Random(0))
    if "://" in name:
        from libra_plan.planner.telemetry.dcgm import DcgmSource

        return DcgmSource(name, clocks, limits)
    if not Path(name).exists():
        raise InputError("no such source", got=name, allowed=_NAMES)
    from libra_plan.planner.telemetry.reader import RecordedSource

    return RecordedSource(Path(name))


def _local(
    name: str,
    clocks: Clocks,
    limits: Limits,
    load: Callable[[], Any],
    find: Callable[[], str | None],
) -> Source:
    """Take NVML, or nvidia-smi where NVML is not to be had and was not asked for by name.

    A driver that is there and fails is not a reason to give up: the source tells, and tries again.
    """
    node = socket.gethostname()
    why = None
    if name != "smi":
        try:
            source = NvmlSource(load(), node, clocks, limits)
        except (InputError, ImportError) as problem:
            why = str(problem)
        else:
            why = source.absent()
            if why is None:
                return source
            source.close()
    if name == "nvml" or find() is None:
        raise InputError(
            "the GPUs of this machine cannot be read",
            got=why or "no nvidia-smi on PATH",
            allowed="a machine with an NVIDIA driver",
            way_out="run it on a GPU node, or name another --source: a recording, a URL, simulated",
        )
    return SmiSource(node, clocks, limits)

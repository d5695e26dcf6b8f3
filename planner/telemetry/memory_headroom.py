"""How much of a GPU's memory its main process can have, from the monitor's samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from libra_plan.planner.telemetry.reader import Played
from libra_plan.planner.telemetry.sample import GpuSample, GpuState

__all__ = ["room_mib", "rooms"]


def room_mib(gpu: GpuSample) -> float | None:
    """Give total memory without what the driver and others hold; the main process holds most.

    None where it cannot be told: unreadable, or its processes are not seen from here.
    """
    processes = None if gpu.details is None else gpu.details.processes
    held = [each.used_mib for each in processes or () if each.used_mib is not None]
    if (
        gpu.state is not GpuState.OK
        or gpu.memory_total_mib is None
        or gpu.memory_used_mib is None
        or not held
    ):
        return None
    others = max(gpu.memory_used_mib - max(held), 0.0)
    return gpu.memory_total_mib - (gpu.memory_reserved_mib or 0.0) - others


def rooms(played: Iterable[Played], window_s: float) -> Iterator[float]:
    """Give, for every window of a recording, the least room on any GPU at any moment of it.

    Windows are laid by each node's monotonic seconds; one without a known room is left out.
    """
    least: dict[tuple[str, str, int], float] = {}
    for each in played:
        sample = each.sample
        key = (each.run, sample.node, int(sample.monotonic_s // window_s))
        for gpu in sample.gpus:
            room = room_mib(gpu)
            if room is not None:
                least[key] = min(least.get(key, math.inf), room)
    yield from least.values()

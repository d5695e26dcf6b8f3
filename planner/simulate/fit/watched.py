"""What a monitor's recording tells of a site: GPUs, how often they were lost, and for how long."""

from __future__ import annotations

from pathlib import Path

from libra_plan.planner.simulate.fit.recorded import Recorded
from libra_plan.planner.telemetry.recording import Playback
from libra_plan.planner.telemetry.sample import GpuState

__all__ = ["add_monitor"]

_GAP_S = 600.0
"""Time between two samples of a GPU beyond which nobody watched it."""


def add_monitor(path: Path, into: Recorded) -> None:
    """Count GPUs, the hours they were watched, and those that went from `ok` to `lost`."""
    playback = Playback(path)
    nodes: dict[str, set[str]] = {}
    last: dict[str, tuple[str, float, GpuState]] = {}
    lost_since: dict[str, float] = {}
    for played in playback:
        sample = played.sample
        for gpu in sample.gpus:
            name = f"{sample.node}/{gpu.uuid or gpu.index}"
            nodes.setdefault(sample.node, set()).add(name)
            run, before_s, state = last.get(name, (played.run, sample.monotonic_s, gpu.state))
            seconds = sample.monotonic_s - before_s if run == played.run else _GAP_S + 1.0
            if 0.0 <= seconds <= _GAP_S:
                into.gpu_hours += seconds / 3600.0
                if gpu.state is GpuState.LOST and state is not GpuState.LOST:
                    into.failures += 1
                    lost_since[name] = sample.monotonic_s
            if gpu.state is GpuState.OK and run == played.run and name in lost_since:
                into.repairs_s.append(sample.monotonic_s - lost_since[name])
            if gpu.state is GpuState.OK or run != played.run:
                lost_since.pop(name, None)
            last[name] = (played.run, sample.monotonic_s, gpu.state)
    into.left_out += [f"{where}: torn" for where in playback.damaged]
    if nodes:
        into.gpus = max(into.gpus or 0, sum(map(len, nodes.values())))
        into.gpus_per_node = max(map(len, nodes.values()))

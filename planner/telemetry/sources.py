"""Where samples come from: this machine, a recording, a cluster or a simulation, behind one interface."""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.sample import READINGS, GpuSample, GpuState, HostSample, NodeSample

__all__ = [
    "Clocks",
    "LastSeen",
    "SampleSource",
    "SourceTimeouts",
    "open_source",
    "sample_of",
    "without_duplicates",
    "without_readings",
]

_NAMES = (
    "auto, nvml, smi, simulated, simulated:N, a recording, http://NODE:9400/metrics, http://PROMETHEUS:9090"
)
_MOST_SIMULATED = 100_000


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two clocks of a sample: `utc_s` since the epoch for its stamp, `monotonic_s` for durations."""

    utc_s: Callable[[], float]
    monotonic_s: Callable[[], float]

    def stamp(self) -> datetime:
        """Return the time of day in UTC, to the millisecond."""
        return datetime.fromtimestamp(round(self.utc_s(), 3), timezone.utc)


@dataclass(frozen=True, slots=True)
class SourceTimeouts:
    """How long a source waits: for one look, for the first answer, and between tries and details."""

    look_s: float = 0.5
    start_s: float = 20.0
    retry_s: float = 30.0
    details_s: float = 5.0


class SampleSource(Protocol):
    """Something that returns samples.

    A `live` source is asked once an interval. `read` returns a sample of each node (a local source has
    one node), always within the timeouts and without raising for what a machine does; None means that
    there will be no more.
    """

    name: str
    live: bool

    def read(self) -> tuple[NodeSample, ...] | None:
        """Take a sample once."""
        ...

    def close(self) -> None:
        """Release what is held, without waiting for a call that hangs."""
        ...


def sample_of(
    source: SampleSource,
    clocks: Clocks,
    node: str,
    now_s: float,
    gpus: Iterable[GpuSample],
    *,
    host: HostSample | None = None,
    fault: str | None = None,
) -> NodeSample:
    """Build the sample of a node that was seen at `now_s` on the monotonic clock."""
    return NodeSample(
        node=node,
        taken_utc=clocks.stamp(),
        monotonic_s=round(now_s, 3),
        source=source.name,
        faults=() if fault is None else (fault,),
        host=host,
        gpus=tuple(gpus),
    )


def without_readings(gpu: GpuSample, state: GpuState, why: str, age_s: float | None = None) -> GpuSample:
    """Return a GPU in its new state; everything that was read of it becomes unknown."""
    blank = dict.fromkeys((*READINGS, "xids", "details"))
    return replace(gpu, state=state, why=why, age_s=gpu.age_s if age_s is None else age_s, **blank)


def without_duplicates(gpus: Sequence[GpuSample]) -> tuple[GpuSample, ...]:
    """Clear the readings of GPUs that share a UUID: whoever joins by UUID would mix them up."""
    times = Counter(gpu.uuid for gpu in gpus if gpu.uuid is not None)
    return tuple(
        gpu
        if gpu.uuid is None or times[gpu.uuid] == 1
        else without_readings(gpu, GpuState.DUPLICATE, f"{times[gpu.uuid]} GPUs have this UUID")
        for gpu in gpus
    )


class LastSeen:
    """Remembers the GPUs of each node, so that one that is missing stays listed without readings."""

    def __init__(self, forget_s: float = float("inf")) -> None:
        self._forget_s = forget_s
        self._gpus: dict[tuple[str, str | None, int | None], tuple[GpuSample, float]] = {}

    def with_missing(
        self, nodes: dict[str, tuple[GpuSample, ...]], at_s: float, now_s: float, state: GpuState, why: str
    ) -> dict[str, list[GpuSample]]:
        """Add the GPUs that were seen before and are not in `nodes`, which were read at `at_s`."""
        found = {node: list(gpus) for node, gpus in nodes.items()}
        here = {(node, gpu.uuid, gpu.index): (gpu, at_s) for node in nodes for gpu in nodes[node]}
        for key, (gpu, seen_s) in self._gpus.items():
            if key not in here and now_s - seen_s < self._forget_s:
                here[key] = gpu, seen_s
                missing = without_readings(gpu, state, why, round(now_s - seen_s, 3))
                found.setdefault(key[0], []).append(missing)
        self._gpus = here
        return found


def open_source(name: str, clocks: Clocks, timeouts: SourceTimeouts) -> SampleSource:
    """Open the source that a user named: this machine, `simulated:N` GPUs, a recording or a URL."""
    kind, _, number = name.partition(":")
    if name in ("auto", "nvml", "smi"):
        return _open_local(name, clocks, timeouts)
    if kind == "simulated" and (number.isdecimal() or not number) and int(number or 8) <= _MOST_SIMULATED:
        from libra_plan.planner.telemetry.simulated import SimulatedSource

        return SimulatedSource(int(number or 8), socket.gethostname(), clocks, random.Random(0))
    if "://" in name:
        from libra_plan.planner.telemetry.dcgm import DcgmSource

        return DcgmSource(name, clocks, timeouts)
    if not Path(name).exists():
        raise InputError("no such source", got=name, allowed=_NAMES)
    from libra_plan.planner.telemetry.recording import RecordedSource

    return RecordedSource(Path(name))


def _open_local(name: str, clocks: Clocks, timeouts: SourceTimeouts) -> SampleSource:
    """Open NVML, or nvidia-smi where NVML is missing and was not asked for by name.

    A driver that is installed but fails is no reason to give up: the source reports it and tries again.
    """
    from libra_plan.planner.telemetry import nvml, smi
    from libra_plan.planner.telemetry.nvml_source import NvmlSource

    node, why = socket.gethostname(), None
    if name != "smi":
        try:
            source = NvmlSource(nvml.load_library(), node, clocks, timeouts)
        except (InputError, ImportError) as problem:
            why = str(problem)
        else:
            why = source.absent()
            if why is None:
                return source
            source.close()
    if name == "nvml" or smi.find_smi() is None:
        raise InputError(
            "the GPUs of this machine cannot be read",
            got=why or "no nvidia-smi on PATH",
            allowed="a machine with an NVIDIA driver",
            way_out="run it on a GPU node, or name another source (--source): a recording, a URL, simulated",
        )
    return smi.SmiSource(node, clocks, timeouts)

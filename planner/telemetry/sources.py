"""Where samples come from: a live machine, a recording, a cluster or a simulation, behind one interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

import msgspec

from libra_plan.planner.telemetry.sample import READINGS, GpuSample, GpuState, HostSample, Sample

__all__ = ["Clocks", "Limits", "Source", "apart", "sample_of", "without_readings"]


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two clocks a sample needs: `utc_s` since the epoch for its stamp, `monotonic_s` for durations."""

    utc_s: Callable[[], float]
    monotonic_s: Callable[[], float]

    def stamp(self) -> datetime:
        """Give the time of day, aware and in UTC, to the millisecond."""
        return datetime.fromtimestamp(round(self.utc_s(), 3), timezone.utc)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a source waits: for one look, for the first answer, and between tries and details."""

    look_s: float = 0.5
    start_s: float = 20.0
    retry_s: float = 30.0
    details_s: float = 5.0


class Source(Protocol):
    """Something that gives samples.

    `live` sources are asked once an interval. `read` gives a sample of each node (one of a local
    source), always within the source's limits and without raising for what a machine does; None says
    that there will be no more.
    """

    name: str
    live: bool

    def read(self) -> tuple[Sample, ...] | None:
        """Look once."""
        ...

    def close(self) -> None:
        """Give back what is held; never waits for a call that hangs."""
        ...


def sample_of(
    source: Source,
    clocks: Clocks,
    node: str,
    now_s: float,
    gpus: Iterable[GpuSample],
    *,
    host: HostSample | None = None,
    fault: str | None = None,
) -> Sample:
    """Put together what a source saw of a node at `now_s` on the monotonic clock."""
    return Sample(
        node=node,
        taken_utc=clocks.stamp(),
        monotonic_s=round(now_s, 3),
        source=source.name,
        faults=() if fault is None else (fault,),
        host=host,
        gpus=tuple(gpus),
    )


def without_readings(gpu: GpuSample, state: GpuState, why: str) -> GpuSample:
    """Keep who a GPU is, and forget what was read of it."""
    return msgspec.structs.replace(
        gpu, state=state, why=why, xids=None, details=None, **dict.fromkeys(READINGS)
    )


def apart(gpus: Sequence[GpuSample]) -> tuple[GpuSample, ...]:
    """Take the readings from GPUs that have a UUID in common: what joins by UUID would mix them up."""
    times = Counter(gpu.uuid for gpu in gpus if gpu.uuid is not None)
    return tuple(
        gpu
        if gpu.uuid is None or times[gpu.uuid] == 1
        else without_readings(gpu, GpuState.DUPLICATE, f"{times[gpu.uuid]} GPUs say they are this one")
        for gpu in gpus
    )

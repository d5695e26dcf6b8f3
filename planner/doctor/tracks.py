"""Tracks: recordings reduced to frozen columns of windows, one track per GPU, host and role.

Unknown is NaN, which compares false with everything, so that an unknown reading never counts as
idle, busy or full.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.telemetry.throughput import RankTotal

__all__ = [
    "Floats",
    "GpuTrack",
    "HostTrack",
    "MovedTask",
    "QueueTrack",
    "RoleTrack",
    "Spell",
    "largest_known",
    "spells",
    "weighted_mean",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class GpuTrack:
    """One GPU by window; `start_s` is on the common axis.

    `seconds` were covered by samples, `known_s` of them with a known utilization, `idle_s` idle;
    `traffic_known_s` with known traffic, `traffic_s` in which traffic was high and work low. `used_mib`
    is the peak of a window and `used_low_mib` the least; `limit_mib` is what programs can have.
    """

    node: str
    uuid: str | None
    index: int | None
    start_s: Floats
    seconds: Floats
    known_s: Floats
    idle_s: Floats
    utilization_percent: Floats
    power_w: Floats
    used_mib: Floats
    used_low_mib: Floats
    limit_mib: Floats
    traffic_known_s: Floats
    traffic_s: Floats

    @property
    def name(self) -> str:
        """`node:index`, or the UUID where the index is not known."""
        return f"{self.node}:{self.uuid if self.index is None else self.index}"


@dataclass(frozen=True, slots=True, eq=False)
class HostTrack:
    """One host by window: `cpu_high_s` of `cpu_known_s` seconds were at the limit."""

    node: str
    start_s: Floats
    cpu_percent: Floats
    cpu_known_s: Floats
    cpu_high_s: Floats
    memory_free_mib: Floats
    memory_total_mib: Floats


@dataclass(frozen=True, slots=True, eq=False)
class QueueTrack:
    """A queue by stretch: its length at the end, and the longest it was."""

    name: str
    start_s: Floats
    last: Floats
    longest: Floats


@dataclass(frozen=True, slots=True, eq=False)
class RoleTrack:
    """One role by stretch, all ranks together; `waiting` is the share of time they waited.

    `reserved_mib` is the most that any rank's allocator held.
    """

    task: str
    role: str
    kind: str
    start_s: Floats
    covered_s: Floats
    waiting: Floats
    samples_per_s: Floats
    reserved_mib: Floats
    queues: tuple[QueueTrack, ...]
    ranks: tuple[RankTotal, ...]

    @property
    def name(self) -> str:
        """The role with its task, which logs may not name."""
        return f"{self.task}/{self.role}" if self.task else self.role

    @property
    def waited_share(self) -> float | None:
        """Share of all recorded time that was waited; None where it was never timed."""
        return weighted_mean(self.waiting, self.covered_s)

    @property
    def mean_rate(self) -> float | None:
        """Samples/s over all that was recorded."""
        return weighted_mean(self.samples_per_s, self.covered_s)

    @property
    def capacity(self) -> float | None:
        """Samples/s in the time in which the role does not wait."""
        known = ~np.isnan(self.samples_per_s) & ~np.isnan(self.waiting)
        working_s = float((self.covered_s * (1 - self.waiting))[known].sum())
        done = float((self.samples_per_s * self.covered_s)[known].sum())
        return done / working_s if working_s > 0 and done > 0 else None


@dataclass(frozen=True, slots=True)
class MovedTask:
    """A task that was moved: when (seconds since 1970), and the seconds of work it lost, if known."""

    task: str
    at_s: float
    action: str
    gpus_before: int
    gpus_after: int
    lost_s: float | None


@dataclass(frozen=True, slots=True)
class Spell:
    """A run of windows, from `began_s` to `ended_s`."""

    began_s: float
    ended_s: float

    @property
    def length_s(self) -> float:
        """The length, seconds."""
        return self.ended_s - self.began_s


def spells(start_s: Floats, chosen: NDArray[np.bool_], length_s: float, gap_s: float) -> Iterator[Spell]:
    """Join chosen windows that follow one another, with gaps of at most `gap_s` between them."""
    places = np.flatnonzero(chosen)
    apart = (np.diff(places) > 1) | (np.diff(start_s[places]) > max(gap_s, length_s))
    for run in np.split(places, np.flatnonzero(apart) + 1):
        if len(run):
            yield Spell(float(start_s[run[0]]), float(start_s[run[-1]]) + length_s)


def weighted_mean(values: Floats, weights: Floats) -> float | None:
    """Average the known values; None where nothing is known or weighs anything."""
    known = ~np.isnan(values)
    weight = float(weights[known].sum())
    return float((values * weights)[known].sum()) / weight if weight > 0 else None


def largest_known(values: Floats) -> float | None:
    """Return the largest known value, None where none is known."""
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None

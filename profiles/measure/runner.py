"""Measure the points of one kind of work: warm-up, repeats, out of memory, resume, time budget.

A `DeviceWork` prepares a step and reads memory; nothing here knows torch, so that it is tested anywhere.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from libra_plan.profiles.measure.journal import MeasureJournal
from libra_plan.profiles.measure.plan import PlannedPoint

__all__ = ["Counts", "DeviceMemory", "DeviceWork", "MeasureSettings", "OutOfDeviceMemory", "measure_points"]

Clock = Callable[[], float]
Step = Callable[[], None]

FAILURES_IN_A_ROW = 2  # after this many the device is likely broken and the rest would fail too


class OutOfDeviceMemory(Exception):
    """The point does not fit on the GPU; an answer, not an error."""


@dataclass(frozen=True)
class DeviceMemory:
    """Peaks of the allocator since the last reset and what the device shows as used, in MiB."""

    peak_allocated_mib: float | None
    peak_reserved_mib: float | None
    device_used_mib: float | None


class DeviceWork(Protocol):
    """A model on a device, ready to run one kind of work.

    `passes`: micro-batches of a point in one step; times are those of one.
    """

    passes: int

    def prepare(self, point: PlannedPoint) -> Step:
        """Allocate what the point needs and return one step; raise OutOfDeviceMemory if it does not fit."""

    def synchronize(self) -> None:
        """Wait until the device has finished."""

    def memory(self) -> DeviceMemory:
        """Read the peaks since the last reset."""

    def reset(self) -> None:
        """Free what the last point held and start the peaks anew."""


@dataclass(frozen=True)
class MeasureSettings:
    """How a point is timed.

    Each of `repeats` times covers as many steps as fill `timing_s` (a step of milliseconds would
    otherwise be blurred by the wait for the device). After `point_s` seconds of repeats no further
    one starts, but `least_repeats` are made.
    """

    warmup: int = 2
    repeats: int = 5
    least_repeats: int = 2
    timing_s: float = 0.02
    point_s: float = 10.0


@dataclass
class Counts:
    """The outcomes of the planned points."""

    ok: int = 0
    oom: int = 0
    failed: int = 0
    done_before: int = 0
    implied_oom: int = 0
    left: int = 0
    walls: list[tuple[int, float]] = field(default_factory=list)  # (tokens, seconds a point took)


def measure_points(
    profile: str,
    workload: DeviceWork,
    points: Sequence[PlannedPoint],
    journal: MeasureJournal,
    *,
    settings: MeasureSettings,
    clock: Clock,
    deadline: float,
    tell: Callable[[PlannedPoint, dict[str, object]], None],
) -> Counts:
    """Measure each point that the journal lacks and the time allows; write each at once."""
    done = journal.done(profile)
    counts = Counts()
    too_large = [point for point, status in done.items() if status == "oom"]
    pending = [point for point in points if point not in done]
    counts.done_before = len(done.keys() & set(points))
    failures = 0
    workload.reset()
    while pending and failures < FAILURES_IN_A_ROW:
        point = _next(pending, counts, deadline - clock())
        if point is None:
            break
        pending.remove(point)
        if any(point.covers(other) for other in too_large):
            counts.implied_oom += 1  # memory grows with both sizes: a smaller point already ran out
            continue
        begun = clock()
        row = _measure(workload, point, settings, clock, deadline)
        row = {"record": "point", "profile": profile, **row, "wall_s": round(clock() - begun, 3)}
        journal.write(row)
        failures = failures + 1 if row["status"] == "failed" else 0
        too_large += [point] if row["status"] == "oom" else []
        _count(counts, point, row)
        tell(point, row)
    counts.left = len(pending)
    return counts


def _next(pending: Sequence[PlannedPoint], counts: Counts, left_s: float) -> PlannedPoint | None:
    """Return the first point expected to end in time; a large one may fit once a middle one is known."""
    return next((point for point in pending if _fits_in_time(point, counts, left_s)), None)


def _count(counts: Counts, point: PlannedPoint, row: dict[str, object]) -> None:
    status = str(row["status"])
    setattr(counts, status, getattr(counts, status) + 1)
    if status == "ok" and isinstance(row["wall_s"], float):
        counts.walls.append((point.tokens, row["wall_s"]))


def _fits_in_time(point: PlannedPoint, counts: Counts, left_s: float) -> bool:
    """Expect a point to last as long as the measured one nearest in tokens, in proportion if larger."""
    if left_s <= 0:
        return False
    if not counts.walls:
        return True
    tokens, wall_s = min(counts.walls, key=lambda known: abs(math.log(known[0] / point.tokens)))
    return wall_s * max(1.0, point.tokens / tokens) <= left_s


def _measure(
    workload: DeviceWork, point: PlannedPoint, settings: MeasureSettings, clock: Clock, deadline: float
) -> dict[str, object]:
    row: dict[str, object] = {
        "batch_sequences": point.batch_sequences,
        "seq_len_tokens": point.seq_len_tokens,
    }
    try:
        row |= {"status": "ok"} | _timed(workload, point, settings, clock, deadline)
    except OutOfDeviceMemory:
        row["status"] = "oom"
    except (RuntimeError, ValueError) as error:  # kept as a row: one bad shape must not end the run
        row |= {"status": "failed", "error": f"{type(error).__name__}: {error}"[:500]}
    workload.reset()  # only here are the frames that hold the point's tensors gone
    return row


def _timed(
    workload: DeviceWork, point: PlannedPoint, settings: MeasureSettings, clock: Clock, deadline: float
) -> dict[str, object]:
    step = workload.prepare(point)
    once_s = 0.0
    for _ in range(max(1, settings.warmup)):
        once_s = _seconds_per_step(workload, step, 1, clock)
    steps = max(1, math.ceil(settings.timing_s / max(once_s * workload.passes, 1e-6)))
    times: list[float] = []
    begun = clock()
    for _ in range(settings.repeats):
        now = clock()
        if len(times) >= settings.least_repeats and (now - begun >= settings.point_s or now >= deadline):
            break
        times.append(_seconds_per_step(workload, step, steps, clock))
    memory = workload.memory()
    return {
        "repeats": len(times),
        "steps_per_repeat": steps,
        "time_s": statistics.median(times),
        "time_low_s": min(times),
        "time_high_s": max(times),
        "peak_allocated_mib": memory.peak_allocated_mib,
        "peak_reserved_mib": memory.peak_reserved_mib,
        "device_used_mib": memory.device_used_mib,
    }


def _seconds_per_step(workload: DeviceWork, step: Step, steps: int, clock: Clock) -> float:
    workload.synchronize()
    begun = clock()
    for _ in range(steps):
        step()
    workload.synchronize()
    return (clock() - begun) / (steps * workload.passes)

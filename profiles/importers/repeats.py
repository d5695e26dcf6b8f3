"""Repeats of one measurement: merged when they agree, kept out when they contradict each other."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from libra_plan.profiles.importers.base import RejectedRow, SourceRow
from libra_plan.profiles.points import DUPLICATE_TOLERANCE, key_of
from libra_plan.profiles.schema import Point

__all__ = ["merge_repeats"]

_MOST_MEMORY = ("peak_allocated_mib", "peak_reserved_mib", "device_used_mib")


def merge_repeats(rows: Sequence[SourceRow]) -> tuple[list[SourceRow], list[RejectedRow]]:
    """Merge rows of one size and layout: the median time with its range, the highest peaks.

    Repeats agree when standard deviation ÷ mean is below 5 %; else none of them is believed.
    """
    groups: dict[tuple[object, ...], list[SourceRow]] = {}
    for row in rows:
        groups.setdefault(key_of(row.point), []).append(row)
    merged, rejected = [], []
    for group in groups.values():
        if len(group) == 1:
            merged.append(group[0])
            continue
        reason = _contradiction([row.point for row in group])
        if reason:
            rejected += [RejectedRow(row.where, reason) for row in group]
        else:
            merged.append(SourceRow(group[0].where, _merge([row.point for row in group])))
    return merged, rejected


def _contradiction(points: Sequence[Point]) -> str | None:
    if len({point.status for point in points}) > 1:
        return "repeats of one measurement contradict each other: " + ", ".join(p.status for p in points)
    times = [point.time_s for point in points if point.time_s is not None]
    if len(times) < 2:
        return None
    variation = statistics.stdev(times) / statistics.fmean(times)
    if variation < DUPLICATE_TOLERANCE:
        return None
    shown = ", ".join(f"{time:g}" for time in times[:5])
    return f"repeats of one measurement vary by {variation:.0%}: {shown} s; allowed {DUPLICATE_TOLERANCE:.0%}"


def _merge(points: Sequence[Point]) -> Point:
    times = [point.time_s for point in points if point.time_s is not None]
    if not times:
        return points[0]

    def middle(name: str) -> float | None:
        known = [value for point in points if (value := getattr(point, name)) is not None]
        return statistics.median(known) if known else None

    def most(name: str) -> float | None:
        return max((value for point in points if (value := getattr(point, name)) is not None), default=None)

    lows = [point.time_low_s or point.time_s or 0.0 for point in points]
    highs = [point.time_high_s or point.time_s or 0.0 for point in points]
    return msgspec.structs.replace(
        points[0],
        time_s=statistics.median(times),
        time_low_s=min(lows),
        time_high_s=max(highs),
        ttft_s=middle("ttft_s"),
        tokens_per_s=middle("tokens_per_s"),
        repeats=sum(point.repeats or 1 for point in points),
        **{name: most(name) for name in _MOST_MEMORY},
    )

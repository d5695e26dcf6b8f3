"""GPU memory that is never used, or that grows and will run out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finding import Finding, Level, Need, duration, finder, finding, unknown
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Floats, GpuTrack, RoleTrack, Spell, largest_known
from libra_plan.planner.doctor.trends import growth
from libra_plan.profiles.units import MIB_PER_GIB

__all__ = ["memory_ahead", "memory_unused"]


@finder("memory-unused", Need.GPUS, Need.MEMORY)
def memory_unused(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find GPUs that work while most of their memory is never used."""
    for group in evidence.groups:
        shares = group.joined("used_mib") / group.joined("limit_mib")
        known_s, seen = group.total("known_s"), ~np.isnan(shares)
        # a peak that was missed could be the one that counts
        unclear = known_s < limits.seen_s or seen.mean() < limits.standing_share
        if unclear or group.total("idle_s") > known_s / 2:
            continue
        peak = float(shares[seen].max())
        if peak < limits.memory_share:
            yield finding(
                Level.NOTE,
                f"{group.name}: most of the memory is never used",
                group.span(limits),
                f"at most {peak:.0%} of a GPU's memory was used at any time",
                (
                    "batches, or sequences at once, are smaller than memory allows, or the role is spread "
                    "over too many GPUs",
                    "`libra-plan batch` says how far they can grow; `shares_gpu` lets small roles share one",
                ),
                unknown("not known from here: `libra-plan profile predict` prices larger batches"),
                {"peak_share": peak},
                **group.whose(),
            )


@dataclass(frozen=True, slots=True)
class _Growth:
    """Growth of memory: of what, from where to where, and when the GPU is full."""

    what: str
    first_mib: float
    last_mib: float
    limit_mib: float
    seconds: float
    full_in_s: float


@finder("memory-ahead", Need.MEMORY)
def memory_ahead(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find GPU memory that will run out: at peak, what stays between peaks, or what allocators reserve."""
    for group in evidence.groups:
        found = [(grows, gpu) for gpu in group.gpus if (grows := _of_gpu(gpu, limits)) is not None]
        if found:
            grows, gpu = min(found, key=lambda each: each[0].full_in_s)
            when = Spell(float(gpu.start_s[0]), float(gpu.start_s[-1]) + limits.window_s)
            whose = group.whose([each for _, each in found])
            yield _ahead(f"{group.name}: {gpu.name}", grows, when, limits, whose)
    for track in evidence.roles:
        reserved = _of_role(evidence, track, limits)
        if reserved is not None:
            when = Spell(float(track.start_s[0]), float(track.start_s[-1]) + limits.stretch_s)
            whose = {"task": track.task, "role": track.role}
            yield _ahead(f"{track.name}: a rank", reserved, when, limits, whose)


def _ahead(name: str, grows: _Growth, when: Spell, limits: Thresholds, whose: dict[str, Any]) -> Finding:
    first, last, limit = (
        f"{mib / MIB_PER_GIB:.1f}" for mib in (grows.first_mib, grows.last_mib, grows.limit_mib)
    )
    return finding(
        Level.CRITICAL if grows.full_in_s <= limits.soon_s else Level.WARNING,
        f"{name} runs out of memory in about {duration(grows.full_in_s)}",
        when,
        f"{grows.what} grew from {first} to {last} GiB of {limit} in {duration(grows.seconds)}",
        (
            "longer sequences, a fragmenting allocator, or tensors that something keeps alive",
            "lower the micro-batch or concurrency now (`libra-plan batch`); then find what stays: "
            "torch.cuda.memory_summary(), expandable_segments:True against fragments",
        ),
        unknown("the run: it ends when memory is full"),
        {
            "first_mib": grows.first_mib,
            "last_mib": grows.last_mib,
            "limit_mib": grows.limit_mib,
            "full_in_s": grows.full_in_s,
        },
        **whose,
    )


def _of_gpu(gpu: GpuTrack, limits: Thresholds) -> _Growth | None:
    limit, peak = largest_known(gpu.limit_mib), largest_known(gpu.used_mib)
    if limit is None or peak is None:
        return None
    return _growth("its memory", gpu.start_s, gpu.used_mib, limit, limits) or _growth(
        "what stays in its memory", gpu.start_s, gpu.used_low_mib, limit, limits, peak
    )


def _of_role(evidence: Evidence, track: RoleTrack, limits: Thresholds) -> _Growth | None:
    """Compare what a role's allocator reserved with the smallest of its GPUs."""
    known = [
        limit for gpu in evidence.gpus_of(track.task, track.role) if (limit := largest_known(gpu.limit_mib))
    ]
    if not known:
        return None
    return _growth("what its allocator reserves", track.start_s, track.reserved_mib, min(known), limits)


def _growth(
    what: str, start_s: Floats, used: Floats, limit: float, limits: Thresholds, peak: float | None = None
) -> _Growth | None:
    """Return growth that fills the limit soon; of lows, `peak` is what comes on top of them."""
    trend = growth(start_s, used, limits, limits.growth_share * limit, "peak" if peak is None else "low")
    if trend is None:
        return None
    left_s = max(limit - (trend.last if peak is None else peak), 0.0) / trend.per_s
    if left_s > trend.horizon_s(limits):
        return None
    return _Growth(what, trend.first, trend.last, limit, trend.seconds, left_s)

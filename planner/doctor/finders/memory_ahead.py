"""`memory-ahead`: GPU memory grows, and will run out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finders.wording import duration, whose
from libra_plan.planner.doctor.finding import Finding, Gain, Level, Need
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Floats, GpuTrack, RoleTrack
from libra_plan.planner.doctor.trends import growth
from libra_plan.profiles.units import MIB_PER_GIB

__all__ = ["MemoryAhead"]


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What grows, from where to where, and when the GPU is full."""

    what: str
    first_mib: float
    last_mib: float
    limit_mib: float
    seconds: float
    full_in_s: float


@dataclass(frozen=True)
class MemoryAhead:
    """Looks at the trend of peaks (reserved), and of what stays between them (residual)."""

    code: str = "memory-ahead"
    needs: tuple[Need, ...] = (Need.MEMORY,)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each group, of its GPU that is full first, and for each role's allocator."""
        for group in evidence.groups:
            found = [(ahead, gpu) for gpu in group.gpus if (ahead := _of_gpu(gpu, limits)) is not None]
            if found:
                ahead, gpu = min(found, key=lambda each: each[0].full_in_s)
                role = "+".join(group.roles) or None
                begun_s, ended_s = float(gpu.start_s[0]), float(gpu.start_s[-1]) + limits.window_s
                names = tuple(each.name for _, each in found)
                yield self._finding(
                    f"{group.name}: {gpu.name}", ahead, (begun_s, ended_s), (group.task, role), names, limits
                )
        for track in evidence.roles:
            ahead_ = _of_role(evidence, track, limits)
            if ahead_ is not None:
                begun_s, ended_s = float(track.start_s[0]), float(track.start_s[-1]) + limits.stretch_s
                name = f"{whose(track.task, track.role)}: a rank"
                yield self._finding(name, ahead_, (begun_s, ended_s), (track.task, track.role), (), limits)

    def _finding(
        self,
        name: str,
        ahead: _Ahead,
        when: tuple[float, float],
        owner: tuple[str | None, str | None],
        gpus: tuple[str, ...],
        limits: Thresholds,
    ) -> Finding:
        return Finding(
            self.code,
            Level.CRITICAL if ahead.full_in_s <= limits.soon_s else Level.WARNING,
            f"{name} runs out of memory in about {duration(ahead.full_in_s)}",
            *when,
            f"{ahead.what} grew from {_gib(ahead.first_mib)} to {_gib(ahead.last_mib)} GiB of "
            f"{_gib(ahead.limit_mib)} in {duration(ahead.seconds)}",
            "longer sequences, a fragmenting allocator, or tensors that something keeps alive",
            "lower the micro-batch or concurrency now (`libra-plan batch`); then find what stays: "
            "torch.cuda.memory_summary(), expandable_segments:True against fragments",
            Gain("unknown", None, "the run: it ends when memory is full"),
            {
                "first_mib": ahead.first_mib,
                "last_mib": ahead.last_mib,
                "limit_mib": ahead.limit_mib,
                "full_in_s": ahead.full_in_s,
            },
            task=owner[0],
            role=owner[1],
            gpus=gpus,
        )


def _of_gpu(gpu: GpuTrack, limits: Thresholds) -> _Ahead | None:
    limit = _largest(gpu.limit_mib)
    peak = _largest(gpu.used_mib)
    if limit is None or peak is None:
        return None
    return _ahead("its memory", gpu.start_s, gpu.used_mib, limit, limits) or _ahead(
        "what stays in its memory", gpu.start_s, gpu.used_low_mib, limit, limits, peak
    )


def _of_role(evidence: Evidence, track: RoleTrack, limits: Thresholds) -> _Ahead | None:
    """Look at what a role's allocator reserved, of the smallest of its GPUs."""
    known = [limit for gpu in evidence.gpus_of(track.task, track.role) if (limit := _largest(gpu.limit_mib))]
    if not known:
        return None
    return _ahead("what its allocator reserves", track.start_s, track.reserved_mib, min(known), limits)


def _ahead(
    what: str, start_s: Floats, used: Floats, limit: float, limits: Thresholds, peak: float | None = None
) -> _Ahead | None:
    trend = growth(start_s, used, limits, limits.growth_share * limit, "peak" if peak is None else "low")
    if trend is None:
        return None
    left_s = max(limit - (trend.last if peak is None else peak), 0.0) / trend.per_s
    if left_s > min(limits.ahead_s, limits.ahead_spans * trend.seconds):
        return None
    return _Ahead(what, trend.first, trend.last, limit, trend.seconds, left_s)


def _largest(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None


def _gib(mib: float) -> str:
    return f"{mib / MIB_PER_GIB:.1f}"

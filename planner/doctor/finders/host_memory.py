"""`host-memory`: a host runs out of memory, or is about to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finders.wording import duration
from libra_plan.planner.doctor.finding import Finding, Gain, Level, Need
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import HostTrack
from libra_plan.planner.doctor.trends import growth

__all__ = ["HostMemory"]


@dataclass(frozen=True)
class HostMemory:
    """Looks at what new processes can have, and at the trend of what is used."""

    code: str = "host-memory"
    needs: tuple[Need, ...] = (Need.HOSTS,)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each host."""
        for host in evidence.hosts:
            share = host.memory_free_mib / host.memory_total_mib
            low = share < limits.host_free_share
            full_s = _full_in_s(host, limits)
            if low.any() or full_s is not None:
                yield self._finding(host, float(np.nanmin(share)), full_s, limits)

    def _finding(self, host: HostTrack, least: float, full_s: float | None, limits: Thresholds) -> Finding:
        share = host.memory_free_mib / host.memory_total_mib
        tight = host.start_s[share < limits.host_free_share]
        when = tight if len(tight) else host.start_s
        figures = {"least_free_share": least} | ({} if full_s is None else {"full_in_s": full_s})
        grows = "" if full_s is None else f"; it grows, and is full in about {duration(full_s)}"
        soon = full_s is not None and full_s <= limits.soon_s
        return Finding(
            self.code,
            Level.CRITICAL if soon else Level.WARNING,
            f"{host.node}: host memory runs out",
            float(when[0]),
            float(when[-1]) + limits.window_s,
            f"at least {least:.1%} of the host's memory was free{grows}",
            "offloaded optimizer states, sleeping roles, data loaders or environments hold more than the "
            "host has",
            "lower what is offloaded or asleep there, or state `host_memory_mib` of nodes and roles so that "
            "the planner keeps room; a steady growth is a leak: find whose with `libra-plan summary`",
            Gain("unknown", None, "the run, when the kernel ends a process for want of memory"),
            figures,
            node=host.node,
        )


def _full_in_s(host: HostTrack, limits: Thresholds) -> float | None:
    """Give the seconds until nothing is free, if memory grows and that is not too far ahead."""
    total, free = np.nanmax(host.memory_total_mib, initial=0.0), host.memory_free_mib
    trend = (
        growth(host.start_s, total - free, limits, limits.growth_share * float(total)) if total > 0 else None
    )
    if trend is None:
        return None
    left_s = (float(total) - trend.last) / trend.per_s
    return left_s if left_s <= min(limits.ahead_s, limits.ahead_spans * trend.seconds) else None

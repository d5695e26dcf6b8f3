"""`host-cpu`: a host's cores are all taken while its GPUs wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finding import Finding, Level, Need, bound_of
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Floats, HostTrack

__all__ = ["HostCpu"]


@dataclass(frozen=True)
class HostCpu:
    """CPU at its limit is a finding unless the node's GPUs are busy all the same."""

    code: str = "host-cpu"
    needs: tuple[Need, ...] = (Need.HOSTS,)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each host."""
        for host in evidence.hosts:
            known_s, high_s = float(host.cpu_known_s.sum()), float(host.cpu_high_s.sum())
            if known_s < limits.seen_s or high_s < limits.cpu_share * known_s:
                continue
            high = host.start_s[host.cpu_high_s > host.cpu_known_s / 2]
            busy = _utilization(evidence, host.node, high)
            if len(high) and (busy is None or busy < limits.busy_percent):
                yield self._finding(host, high_s / known_s, busy, high, limits)

    def _finding(
        self, host: HostTrack, share: float, busy: float | None, high: Floats, limits: Thresholds
    ) -> Finding:
        figures = {"cpu_high_share": share, "cpu_mean_percent": float(np.nanmean(host.cpu_percent))}
        gpus = (
            "its GPUs' utilization is not known" if busy is None else f"its GPUs were {busy:.0f} % busy then"
        )
        if busy is not None:
            figures["gpu_utilization_percent"] = busy
        lost = share * (1 - (busy or 0.0) / 100)
        return Finding(
            self.code,
            Level.WARNING,
            f"{host.node}: CPU cores are exhausted",
            float(high[0]),
            float(high[-1]) + limits.window_s,
            f"CPU at {limits.cpu_percent:.0f} % or more in {share:.0%} of the time; {gpus}",
            "tool environments, data loading or tokenization take the cores that feed the GPUs",
            "move environment workers to other nodes, or plan them with `cpu_cores` and `cpu_workers` so "
            "that the planner keeps room for them",
            bound_of(lost, "the GPUs' rest at those times"),
            figures,
            node=host.node,
        )


def _utilization(evidence: Evidence, node: str, starts: Floats) -> float | None:
    """Give the mean utilization of a node's GPUs in windows, percent; None where unknown."""
    work = known_s = 0.0
    for gpu in evidence.gpus:
        if gpu.node == node:
            chosen = np.isin(gpu.start_s, starts) & ~np.isnan(gpu.utilization_percent)
            work += float((gpu.utilization_percent * gpu.known_s)[chosen].sum())
            known_s += float(gpu.known_s[chosen].sum())
    return work / known_s if known_s else None

"""Hosts whose cores are exhausted or whose memory runs out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finding import (
    Finding,
    Level,
    Need,
    bound_of,
    duration,
    finder,
    finding,
    unknown,
)
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Floats, HostTrack, Spell, largest_known, weighted_mean
from libra_plan.planner.doctor.trends import growth

__all__ = ["host_cpu", "host_memory"]


@finder("host-cpu", Need.HOSTS)
def host_cpu(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find hosts whose cores are all taken while their GPUs wait."""
    for host in evidence.hosts:
        known_s, high_s = float(host.cpu_known_s.sum()), float(host.cpu_high_s.sum())
        if known_s < limits.seen_s or high_s < limits.cpu_share * known_s:
            continue
        high = host.start_s[host.cpu_high_s > host.cpu_known_s / 2]
        busy = _utilization(evidence, host.node, high)
        if not len(high) or (busy is not None and busy >= limits.busy_percent):
            continue
        share = high_s / known_s
        figures = {"cpu_high_share": share, "cpu_mean_percent": float(np.nanmean(host.cpu_percent))}
        gpus = "its GPUs' utilization is not known"
        if busy is not None:
            figures["gpu_utilization_percent"] = busy
            gpus = f"its GPUs were {busy:.0f} % busy then"
        yield finding(
            Level.WARNING,
            f"{host.node}: CPU cores are exhausted",
            Spell(float(high[0]), float(high[-1]) + limits.window_s),
            f"CPU at {limits.cpu_percent:.0f} % or more in {share:.0%} of the time; {gpus}",
            (
                "tool environments, data loading or tokenization take the cores that feed the GPUs",
                "move environment workers to other nodes, or plan them with `cpu_cores` and `cpu_workers` "
                "so that the planner keeps room for them",
            ),
            bound_of(share * (1 - (busy or 0.0) / 100), "the GPUs' rest at those times"),
            figures,
            node=host.node,
        )


def _utilization(evidence: Evidence, node: str, starts: Floats) -> float | None:
    """Return the mean utilization of a node's GPUs in windows, percent; None where unknown."""
    gpus = [gpu for gpu in evidence.gpus if gpu.node == node]
    if not gpus:
        return None
    chosen = np.concatenate([np.isin(gpu.start_s, starts) for gpu in gpus])
    busy = np.concatenate([gpu.utilization_percent for gpu in gpus])
    return weighted_mean(busy[chosen], np.concatenate([gpu.known_s for gpu in gpus])[chosen])


@finder("host-memory", Need.HOSTS)
def host_memory(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find hosts that run out of memory, or are about to."""
    for host in evidence.hosts:
        share = host.memory_free_mib / host.memory_total_mib
        tight, full_s = host.start_s[share < limits.host_free_share], _full_in_s(host, limits)
        if not len(tight) and full_s is None:
            continue
        least = float(np.nanmin(share))
        when = tight if len(tight) else host.start_s
        grows = "" if full_s is None else f"; it grows, and is full in about {duration(full_s)}"
        soon = full_s is not None and full_s <= limits.soon_s
        yield finding(
            Level.CRITICAL if soon else Level.WARNING,
            f"{host.node}: host memory runs out",
            Spell(float(when[0]), float(when[-1]) + limits.window_s),
            f"at least {least:.1%} of the host's memory was free{grows}",
            (
                "offloaded optimizer states, sleeping roles, data loaders or environments hold more than "
                "the host has",
                "lower what is offloaded or asleep there, or state `host_memory_mib` of nodes and roles so "
                "that the planner keeps room; steady growth is a leak: find whose with `libra-plan summary`",
            ),
            unknown("the run, when the kernel ends a process for want of memory"),
            {"least_free_share": least} | ({} if full_s is None else {"full_in_s": full_s}),
            node=host.node,
        )


def _full_in_s(host: HostTrack, limits: Thresholds) -> float | None:
    """Return the seconds until nothing is free, if memory grows and that is not too far ahead."""
    total = largest_known(host.memory_total_mib)
    if not total:
        return None
    trend = growth(host.start_s, total - host.memory_free_mib, limits, limits.growth_share * total)
    if trend is None:
        return None
    left_s = (total - trend.last) / trend.per_s
    return left_s if left_s <= trend.horizon_s(limits) else None

"""`sync-traffic`: GPUs wait for links while gradients or weights are passed on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from libra_plan.planner.doctor.evidence import TRAINING, Evidence, Group
from libra_plan.planner.doctor.finding import Finding, Level, Need, bound_of
from libra_plan.planner.doctor.settings import Thresholds

__all__ = ["SyncTraffic"]


@dataclass(frozen=True)
class SyncTraffic:
    """Adds up the time in which a link is busy while the GPU computes little."""

    code: str = "sync-traffic"
    needs: tuple[Need, ...] = (Need.GPUS, Need.TRAFFIC)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each group of GPUs."""
        for group in evidence.groups:
            known_s = sum(float(gpu.traffic_known_s.sum()) for gpu in group.gpus)
            bound_s = sum(float(gpu.traffic_s.sum()) for gpu in group.gpus)
            if known_s >= limits.seen_s and bound_s >= limits.sync_share * known_s:
                yield self._finding(evidence, group, bound_s / known_s, limits)

    def _finding(self, evidence: Evidence, group: Group, share: float, limits: Thresholds) -> Finding:
        when = [
            float(start_s)
            for gpu in group.gpus
            for start_s in (gpu.start_s[gpu.traffic_s > 0][[0, -1]] if gpu.traffic_s.any() else ())
        ]
        cause, advice = _why(evidence, group)
        return Finding(
            self.code,
            Level.WARNING,
            f"{group.name}: GPUs wait for the network",
            min(when),
            max(when) + limits.window_s,
            f"in {share:.0%} of the time a link was busy (host network ≥ "
            f"{limits.network_bytes_per_s / 1e9:g}, NVLink ≥ {limits.nvlink_bytes_per_s / 1e9:g}, PCIe ≥ "
            f"{limits.pcie_bytes_per_s / 1e9:g} GB/s) while the GPU was at most {limits.slack_percent:g} % "
            f"busy or drew at most {limits.slack_power:.0%} of its power limit",
            cause,
            advice,
            bound_of(share, "that waiting"),
            {"sync_share": share},
            task=group.task,
            role="+".join(group.roles) or None,
            gpus=tuple(gpu.name for gpu in group.gpus if gpu.traffic_s.any()),
        )


def _why(evidence: Evidence, group: Group) -> tuple[str, str]:
    known = {} if evidence.placement is None else evidence.placement.kinds
    kinds = {kind for (task, role), kind in known.items() if task == group.task and role in group.roles}
    if kinds.intersection(TRAINING):
        return (
            "gradients (or weights, for the rollout) are exchanged over a link that is too slow for their "
            "size",
            "keep tensor-parallel ranks within an NVLink domain, accumulate more micro-batches between "
            "exchanges, and state the nodes' bandwidth in cluster.yaml so that the planner counts it",
        )
    if "rollout" in kinds:
        return (
            "new weights reach the rollout over a link that is too slow for their size",
            "pass weights on less often (staleness_steps), from device to device rather than over the host, "
            "or place rollout and training in one node or NVLink domain",
        )
    return (
        "gradients or weights are passed on over a link that is too slow for their size",
        "name the roles with --manifest to see which; keep those that exchange most in one node or NVLink "
        "domain",
    )

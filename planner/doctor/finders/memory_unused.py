"""`memory-unused`: GPUs work, and most of their memory is never used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from libra_plan.planner.doctor.evidence import Evidence, Group
from libra_plan.planner.doctor.finding import Finding, Gain, Level, Need
from libra_plan.planner.doctor.settings import Thresholds

__all__ = ["MemoryUnused"]


@dataclass(frozen=True)
class MemoryUnused:
    """Compares the highest peak of all GPUs of a group with what they have."""

    code: str = "memory-unused"
    needs: tuple[Need, ...] = (Need.GPUS, Need.MEMORY)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each working group with room for larger batches."""
        for group in evidence.groups:
            shares = np.concatenate([gpu.used_mib / gpu.limit_mib for gpu in group.gpus])
            known_s = sum(float(gpu.known_s.sum()) for gpu in group.gpus)
            idle_s = sum(float(gpu.idle_s.sum()) for gpu in group.gpus)
            seen = ~np.isnan(shares)
            # a peak that was missed could be the one that counts
            if known_s < limits.seen_s or idle_s > known_s / 2 or seen.mean() < limits.standing_share:
                continue
            peak = float(shares[seen].max())
            if peak < limits.memory_share:
                yield self._finding(group, peak, limits)

    def _finding(self, group: Group, peak: float, limits: Thresholds) -> Finding:
        return Finding(
            self.code,
            Level.NOTE,
            f"{group.name}: most of the memory is never used",
            min(float(gpu.start_s[0]) for gpu in group.gpus),
            max(float(gpu.start_s[-1]) for gpu in group.gpus) + limits.window_s,
            f"at most {peak:.0%} of a GPU's memory was used at any time",
            "batches, or sequences at once, are smaller than memory allows, or the role is spread over too "
            "many GPUs",
            "`libra-plan batch` says how far they can grow; `shares_gpu` lets small roles share a GPU",
            Gain("unknown", None, "not known from here: `libra-plan profile predict` prices larger batches"),
            {"peak_share": peak},
            task=group.task,
            role="+".join(group.roles) or None,
            gpus=tuple(gpu.name for gpu in group.gpus),
        )

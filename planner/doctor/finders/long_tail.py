"""`long-tail`: some GPUs of a role work on while the others have nothing left (A037, A038)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from libra_plan.planner.doctor.evidence import Evidence, Group
from libra_plan.planner.doctor.finders.wording import duration
from libra_plan.planner.doctor.finding import Finding, Level, Need, bound_of
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Floats

__all__ = ["LongTail"]

_RESTS, _WORKS = 0.9, 0.5  # shares of a window that are idle


@dataclass(frozen=True)
class LongTail:
    """Counts the windows in which one GPU works and at least half of a role's rest."""

    code: str = "long-tail"
    needs: tuple[Need, ...] = (Need.GPUS, Need.PLACEMENT)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each group of GPUs that a role holds."""
        for group in evidence.groups:
            if not group.roles or len(group.gpus) < 2:
                continue
            starts, idle = _idle_shares(group)
            active = (idle < _WORKS).any(axis=0) & ~np.isnan(idle).any(axis=0)
            tail = active & ((idle >= _RESTS).mean(axis=0) >= 0.5)
            active_s, tail_s = float(active.sum()) * limits.window_s, float(tail.sum()) * limits.window_s
            if active_s >= limits.seen_s and tail_s >= limits.tail_share * active_s:
                wasted_s = float(idle[:, tail].mean(axis=0).sum()) * limits.window_s
                yield self._finding(group, starts[tail], (active_s, tail_s, wasted_s), limits)

    def _finding(
        self, group: Group, starts: Floats, seconds: tuple[float, float, float], limits: Thresholds
    ) -> Finding:
        active_s, tail_s, wasted_s = seconds
        return Finding(
            self.code,
            Level.WARNING,
            f"{group.name}: a few GPUs work while the others rest",
            float(starts[0]),
            float(starts[-1]) + limits.window_s,
            f"in {tail_s / active_s:.0%} of {duration(active_s)} of work at least half of its "
            f"{len(group.gpus)} GPUs were idle",
            "the longest trajectories (or requests sent one after the other) keep few GPUs busy to the end "
            "of the step",
            "do not add GPUs; spread the load: `mixed_layouts`, partial rollouts, requests in parallel, or "
            "let the next step's rollout begin meanwhile (coupling `async`)",
            bound_of(wasted_s / active_s, "the rest in the tail"),
            {"tail_share": tail_s / active_s, "active_s": active_s, "tail_s": tail_s},
            task=group.task,
            role="+".join(group.roles),
            gpus=tuple(gpu.name for gpu in group.gpus),
        )


def _idle_shares(group: Group) -> tuple[Floats, Floats]:
    """Give windows, and a row of idle shares for each GPU; NaN where it is not known."""
    starts = np.unique(np.concatenate([gpu.start_s for gpu in group.gpus]))
    shares = np.full((len(group.gpus), len(starts)), np.nan)
    for row, gpu in zip(shares, group.gpus, strict=True):
        known = gpu.known_s > 0
        row[np.searchsorted(starts, gpu.start_s[known])] = gpu.idle_s[known] / gpu.known_s[known]
    return starts, shares

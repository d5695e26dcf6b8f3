"""`hang`: GPUs are busy and nothing gets done (A049). Progress beats utilization."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from libra_plan.planner.doctor.evidence import Evidence, Group
from libra_plan.planner.doctor.finders.wording import duration
from libra_plan.planner.doctor.finding import Finding, Gain, Level, Need
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import GpuTrack
from libra_plan.planner.doctor.work import Pace

__all__ = ["Hang"]

_QUIET_PAUSES = 3.0
_LEAST_QUIET_S = 60.0  # a checkpoint or an evaluation takes as long


@dataclass(frozen=True)
class Hang:
    """Compares the last progress of the roles of a group of GPUs with what the GPUs did since."""

    code: str = "hang"
    needs: tuple[Need, ...] = (Need.GPUS, Need.ROLES, Need.JOINED)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each group whose roles have been quiet for too long, to the end."""
        paces = dict(evidence.paces)
        for group in _groups(evidence):
            own = [
                pace
                for (task, role), pace in paces.items()
                if task == group.task and (not group.roles or role in group.roles)
            ]
            if own:
                last = Pace(max(each.last_s for each in own), max(each.longest_pause_s for each in own))
                yield from self._judge(group, last, limits)

    def _judge(self, group: Group, pace: Pace, limits: Thresholds) -> Iterator[Finding]:
        end_s = max(float(gpu.start_s[-1]) + limits.window_s for gpu in group.gpus)
        quiet_s = end_s - pace.last_s
        if quiet_s <= _patience_s(pace.longest_pause_s):
            return
        busy, power = _since(group.gpus, pace.last_s)
        if busy is None or busy < limits.busy_percent:
            return
        drawn = "" if power is None else f" at {power:.0f} W"
        figures = {"quiet_s": quiet_s, "usual_pause_s": pace.longest_pause_s, "utilization_percent": busy}
        yield Finding(
            self.code,
            Level.CRITICAL,
            f"{group.name} hangs: busy GPUs, no progress",
            pace.last_s,
            end_s,
            f"no progress for {duration(quiet_s)} (longest pause before: {duration(pace.longest_pause_s)}) "
            f"while its GPUs are {busy:.0f} % busy{drawn}",
            "kernels that wait for one another spin: a collective that a rank never joined, or a dead peer; "
            "low power at full utilization is its mark",
            "find the rank that is behind (stacks by py-spy, NCCL flight recorder), then restart the task "
            "from its checkpoint; a time limit on collectives turns the next one into an error",
            Gain("unknown", None, "all of the task's work from then on"),
            figures | ({} if power is None else {"power_w": power}),
            task=group.task,
            gpus=tuple(gpu.name for gpu in group.gpus),
        )


def _patience_s(longest_pause_s: float) -> float:
    """Give how long a role may be quiet: three times its longest usual pause, a minute at least."""
    return max(_QUIET_PAUSES * longest_pause_s, _LEAST_QUIET_S)


def _groups(evidence: Evidence) -> Iterator[Group]:
    """Give groups of one task; without a manifest all GPUs, where only one task is counted."""
    if evidence.placement is not None:
        yield from (group for group in evidence.groups if group.task is not None)
    elif len(evidence.tasks) == 1:
        (task,) = evidence.tasks
        yield Group(task or "the task", task, (), evidence.gpus)


def _since(gpus: tuple[GpuTrack, ...], at_s: float) -> tuple[float | None, float | None]:
    """Give mean utilization and power of GPUs from a moment on; None where unknown."""
    work = known_s = power = power_s = 0.0
    for gpu in gpus:
        chosen = gpu.start_s >= at_s
        known = chosen & ~np.isnan(gpu.utilization_percent)
        work += float((gpu.utilization_percent * gpu.known_s)[known].sum())
        known_s += float(gpu.known_s[known].sum())
        drawn = chosen & ~np.isnan(gpu.power_w)
        power += float((gpu.power_w * gpu.seconds)[drawn].sum())
        power_s += float(gpu.seconds[drawn].sum())
    return work / known_s if known_s else None, power / power_s if power_s else None

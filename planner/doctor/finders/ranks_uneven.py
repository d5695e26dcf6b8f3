"""`ranks-uneven`: one rank has more to do, and the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finders.wording import whose
from libra_plan.planner.doctor.finding import Finding, Level, Need, bound_of
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import RoleTrack

__all__ = ["RanksUneven"]


@dataclass(frozen=True)
class RanksUneven:
    """Compares the time that each data-parallel rank of a role worked."""

    code: str = "ranks-uneven"
    needs: tuple[Need, ...] = (Need.ROLES, Need.WAITING)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each role of several ranks that all tell their waits."""
        for role in evidence.roles:
            worked = {
                each.dp_rank: (each.covered_s - each.waited_s) / each.covered_s
                for each in role.ranks
                if each.waited_s is not None and each.covered_s >= limits.seen_s
            }
            if len(worked) < 2 or len(worked) < len(role.ranks):
                continue
            mean = fmean(worked.values())
            slowest = max(worked, key=lambda rank: worked[rank])
            if mean > 0 and worked[slowest] >= limits.rank_spread * mean:
                yield self._finding(role, slowest, worked[slowest], mean, limits)

    def _finding(
        self, role: RoleTrack, slowest: int, most: float, mean: float, limits: Thresholds
    ) -> Finding:
        return Finding(
            self.code,
            Level.WARNING,
            f"{whose(role.task, role.role)}: rank {slowest} holds the others up",
            float(role.start_s[0]),
            float(role.start_s[-1]) + limits.stretch_s,
            f"data-parallel rank {slowest} worked {most:.0%} of the time, the mean of {len(role.ranks)} "
            f"ranks {mean:.0%}",
            "sequences are dealt out by number rather than by tokens, or that rank's GPU is slower",
            "pack by length (`libra_plan.fill_bins`); if the rank is the same with other data, compare its "
            "clocks and temperature with `libra-plan summary`",
            bound_of(most - mean, "the difference to the mean"),
            {"slowest_working_share": most, "mean_working_share": mean},
            task=role.task,
            role=role.role,
        )

"""Let every finder look, in the order an engineer would."""

from __future__ import annotations

from dataclasses import dataclass

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finders.backlog import Backlog
from libra_plan.planner.doctor.finders.gpus_idle import GpusIdle
from libra_plan.planner.doctor.finders.hang import Hang
from libra_plan.planner.doctor.finders.host_cpu import HostCpu
from libra_plan.planner.doctor.finders.host_memory import HostMemory
from libra_plan.planner.doctor.finders.long_tail import LongTail
from libra_plan.planner.doctor.finders.memory_ahead import MemoryAhead
from libra_plan.planner.doctor.finders.memory_unused import MemoryUnused
from libra_plan.planner.doctor.finders.ranks_uneven import RanksUneven
from libra_plan.planner.doctor.finders.rollout_slow import RolloutSlow
from libra_plan.planner.doctor.finders.sync_traffic import SyncTraffic
from libra_plan.planner.doctor.finders.thrash import Thrash
from libra_plan.planner.doctor.finders.training_slow import TrainingSlow
from libra_plan.planner.doctor.finding import Finder, Finding, Level
from libra_plan.planner.doctor.settings import Thresholds

__all__ = ["FINDERS", "Diagnosis", "Unseen", "diagnose"]

FINDERS: tuple[Finder, ...] = (
    Hang(),
    RolloutSlow(),
    TrainingSlow(),
    GpusIdle(),
    MemoryUnused(),
    HostCpu(),
    HostMemory(),
    SyncTraffic(),
    LongTail(),
    RanksUneven(),
    MemoryAhead(),
    Thrash(),
    Backlog(),
)
"""A run that hangs does nothing else worth telling; then the order in which one asks."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """What could not be looked for, and the recordings it would take."""

    code: str
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings in order, and what the recordings do not tell."""

    findings: tuple[Finding, ...]
    unseen: tuple[Unseen, ...]

    @property
    def worst(self) -> Level | None:
        """Give the highest level found; None when nothing was."""
        return max((each.level for each in self.findings), key=lambda level: level.rank, default=None)


def diagnose(evidence: Evidence, limits: Thresholds | None = None) -> Diagnosis:
    """Look for everything that the recordings can tell."""
    limits = limits or Thresholds()
    findings: list[Finding] = []
    unseen = []
    length_s = 0.0 if evidence.span_s is None else evidence.span_s[1] - evidence.span_s[0]
    for finder in FINDERS:
        lacking = tuple(need.value for need in finder.needs if need not in evidence.has)
        if lacking:
            unseen.append(Unseen(finder.code, lacking))
            continue
        found = list(finder.look(evidence, limits))
        findings += found
        if not found and length_s < limits.seen_s:
            short = f"{limits.seen_s:.0f} s of recording at least; there are {length_s:.0f} s"
            unseen.append(Unseen(finder.code, (short,)))
    return Diagnosis(tuple(findings), tuple(unseen))

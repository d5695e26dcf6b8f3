"""Run every finder, in the order in which an engineer would look."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finders.gpus import gpus_idle, hang, long_tail, sync_traffic
from libra_plan.planner.doctor.finders.hosts import host_cpu, host_memory
from libra_plan.planner.doctor.finders.memory import memory_ahead, memory_unused
from libra_plan.planner.doctor.finders.moves import thrash
from libra_plan.planner.doctor.finders.roles import backlog, ranks_uneven, rollout_slow, training_slow
from libra_plan.planner.doctor.finding import Finder, Finding, Level
from libra_plan.planner.doctor.reading import read_evidence
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.inputs.price import read_running
from libra_plan.planner.telemetry.readers import ReaderFacts, paths_of

__all__ = ["FINDERS", "Diagnosis", "Unseen", "diagnose", "judge", "utc_text"]

FINDERS: tuple[Finder, ...] = (
    hang,
    rollout_slow,
    training_slow,
    gpus_idle,
    memory_unused,
    host_cpu,
    host_memory,
    sync_traffic,
    long_tail,
    ranks_uneven,
    memory_ahead,
    thrash,
    backlog,
)
"""The order of the findings: first a run that hangs, then as an engineer would look."""
_WALL_CLOCK_S = 1e9  # logs without a wall clock begin at 0


@dataclass(frozen=True, slots=True)
class Unseen:
    """A finding that could not be looked for, and the recordings that it needs."""

    code: str
    lacks: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis:
    """The findings in order, what the recordings do not show, and lines that could not be read."""

    findings: tuple[Finding, ...]
    unseen: tuple[Unseen, ...]
    left_out: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=Evidence, repr=False, compare=False)
    limits: Thresholds = field(default_factory=Thresholds, repr=False, compare=False)

    @property
    def worst(self) -> Level | None:
        """The highest level found; None when nothing was."""
        return max((each.level for each in self.findings), key=lambda level: level.rank, default=None)

    def is_at_least(self, level: str) -> bool:
        """Whether a finding has this level (`note`, `warning`, `critical`) or a higher one."""
        return self.worst is not None and self.worst.rank >= Level(level).rank

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with times also as dates where the recording has a wall clock."""
        findings = [
            msgspec.to_builtins(each)
            | {"began_utc": utc_text(each.began_s), "ended_utc": utc_text(each.ended_s)}
            for each in self.findings
        ]
        return {
            "worst": None if self.worst is None else self.worst.value,
            "findings": findings,
            "unseen": msgspec.to_builtins(self.unseen),
            "left_out": list(self.left_out),
        }


def utc_text(at_s: float) -> str | None:
    """Write seconds since 1970 as a date; None for those of a log that has no wall clock."""
    if at_s < _WALL_CLOCK_S:
        return None
    return f"{datetime.fromtimestamp(at_s, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def diagnose(
    recordings: str | Path | Iterable[str | Path],
    *,
    run: Path | str | None = None,
    reader: str = "counter",
    task: str = "",
    gpus: int | None = None,
    samples: int | None = None,
    window_s: float = 10.0,
) -> Diagnosis:
    """Find what holds a pipeline back, from recordings of one run.

    Parameters
    ----------
    recordings
        A file or a folder that `monitor` or `libra_plan.counter` wrote, or several of them.
    run
        Manifest of the plan that ran, or its folder: whose the GPUs are, and which tasks were moved.
    reader, task, gpus, samples
        Whose metrics the files of work hold, and what a log may not say; see `throughput`.
    window_s
        Length in seconds of the windows in which samples are summed up.

    Returns
    -------
    Diagnosis
        The findings with evidence, cause, advice and gain, in the order to look at them, and what
        could not be looked for.

    Raises
    ------
    InputError
        A path does not exist or nothing was recorded there.

    Examples
    --------
    >>> import libra_plan as lp
    >>> looks = lp.monitor("simulated:8", for_s=0.0, out="telemetry")
    >>> diagnosis = lp.diagnose("telemetry")
    >>> diagnosis.findings, [each.code for each in diagnosis.unseen][:2]
    ((), ['hang', 'rollout-slow'])
    """
    manifest = read_running(run)
    folder = None if run is None else Path(run) if Path(run).is_dir() else Path(run).parent
    limits = Thresholds(window_s=window_s, gap_s=max(60.0, 2 * window_s))
    left_out: list[str] = []
    facts, paths = ReaderFacts(task, gpus, samples), paths_of(recordings)
    evidence = read_evidence(paths, manifest, folder, reader, facts, limits, left_out)
    return judge(evidence, limits, left_out)


def judge(evidence: Evidence, limits: Thresholds | None = None, left_out: Iterable[str] = ()) -> Diagnosis:
    """Run every finder for which there is evidence."""
    limits = limits or Thresholds()
    findings: list[Finding] = []
    unseen = []
    length_s = 0.0 if evidence.span_s is None else evidence.span_s[1] - evidence.span_s[0]
    for finder in FINDERS:
        lacking = tuple(need.value for need in finder.needs if need not in evidence.has)
        found = [] if lacking else list(finder.find(evidence, limits))
        findings += found
        if not lacking and not found and length_s < limits.seen_s:
            lacking = (f"{limits.seen_s:.0f} s of recording at least; there are {length_s:.0f} s",)
        if lacking:
            unseen.append(Unseen(finder.code, lacking))
    return Diagnosis(tuple(findings), tuple(unseen), tuple(left_out), evidence, limits)

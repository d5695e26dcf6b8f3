"""Reduce windows of work to role tracks, in one pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Floats, QueueTrack, RoleTrack
from libra_plan.planner.telemetry.throughput import Ledger, Rate
from libra_plan.planner.telemetry.work_windows import ClockAxis, WorkWindow

__all__ = ["Pace", "WorkFold", "guess_kind"]

_KINDS = {
    "actor_train": ("actor", "trainer", "train", "policy", "learner"),
    "rollout": ("rollout", "generator", "generate", "gen", "engine", "sampler"),
    "reward": ("reward", "verifier", "judge"),
    "env": ("env", "environment", "tool", "sandbox"),
}


def guess_kind(role: str) -> str:
    """Guess a role's kind from its name, where there is no manifest; else return the name itself."""
    name = role.lower().replace("-", "_")
    return next((kind for kind, names in _KINDS.items() if name == kind or name in names), name)


@dataclass(frozen=True, slots=True)
class Pace:
    """The time of the last progress, seconds on the axis, and the longest usual pause before it."""

    last_s: float
    longest_pause_s: float


class WorkFold:
    """Takes windows in any order of processes, and returns tracks."""

    def __init__(self, limits: Thresholds) -> None:
        self._ledger = Ledger(limits.stretch_s)
        self._axis = ClockAxis()
        self._paces: dict[tuple[str, str], dict[str, list[float]]] = {}  # source: [last, longest pause]
        self._reserved: dict[tuple[str, str], dict[int, float]] = {}  # by stretch
        self._stretch_s = limits.stretch_s

    def add_all(self, windows: Iterable[WorkWindow]) -> None:
        """Add windows."""
        for window in self._ledger.adding(windows):
            end_s, key = self._axis.end_s(window), (window.task, window.role)
            if window.tokens or window.samples or window.episodes or window.steps:
                length_s = window.length_s
                pace = self._paces.setdefault(key, {}).setdefault(window.source, [end_s, length_s])
                pace[1] = max(pace[1], length_s, end_s - pace[0])
                pace[0] = max(pace[0], end_s)
            if window.peak_reserved_mib is not None:
                peaks, stretch = self._reserved.setdefault(key, {}), math.floor(end_s / self._stretch_s)
                peaks[stretch] = max(peaks.get(stretch, 0.0), window.peak_reserved_mib)

    def paces(self) -> dict[tuple[str, str], Pace]:
        """Return the pace of each role: that of its process that worked last, pauses of all."""
        return {
            key: Pace(max(last for last, _ in of.values()), max(pause for _, pause in of.values()))
            for key, of in self._paces.items()
        }

    def tracks(self, kinds: Mapping[tuple[str, str], str]) -> tuple[RoleTrack, ...]:
        """Return the tracks in the order of tasks and roles; `kinds` is what a manifest knows."""
        ranks = {(task, role): totals for task, role, totals in self._ledger.ranks()}
        found = []
        for key, group in groupby(self._ledger.rates(), key=lambda rate: (rate.task, rate.role)):
            rates, reserved = list(group), self._reserved.get(key, {})
            stretches = [round(rate.start_s / self._stretch_s) for rate in rates]
            found.append(
                RoleTrack(
                    *key,
                    kind=kinds.get(key) or guess_kind(key[1]),
                    start_s=_column(rate.start_s for rate in rates),
                    covered_s=_column(rate.covered_s for rate in rates),
                    waiting=_column(rate.idle for rate in rates),
                    samples_per_s=_column(rate.samples_per_s for rate in rates),
                    reserved_mib=_column(reserved.get(stretch) for stretch in stretches),
                    queues=tuple(_queues(rates)),
                    ranks=ranks[key],
                )
            )
        return tuple(found)


def _column(values: Iterable[float | None]) -> Floats:
    column = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    column.setflags(write=False)
    return column


def _queues(rates: Sequence[Rate]) -> Iterator[QueueTrack]:
    looks: dict[str, list[tuple[float, float, float]]] = {}
    for rate in rates:
        for queue in rate.queues:
            looks.setdefault(queue.name, []).append((rate.start_s, queue.last, queue.longest))
    for name, rows in sorted(looks.items()):
        yield QueueTrack(name, *(_column(column) for column in zip(*rows, strict=True)))

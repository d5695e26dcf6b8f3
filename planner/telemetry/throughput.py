"""Add up windows into rates: by role and by stretch of time, every data-parallel rank once.

Streams are read one after the other and only sums are kept, so memory grows with the hours and the
ranks, not with the lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from libra_plan.planner.telemetry.work_windows import Axis, WorkWindow

__all__ = ["Ledger", "QueueLength", "RankTotal", "Rate"]

_COUNTS = ("tokens", "samples", "episodes", "steps")


@dataclass(frozen=True, slots=True)
class QueueLength:
    """A queue at the end of a stretch (`last`), and the longest it was."""

    name: str
    last: float
    longest: float


@dataclass(frozen=True, slots=True)
class Rate:
    """What a role did from `start_s` to `end_s` (seconds since 1970 where the recording says so).

    Rates are those of all its data-parallel ranks together, per second of the time that was
    recorded (`covered_s`); None where nothing was counted or no time passed. `idle` is the share of
    that time its ranks waited, as the mean over ranks; `staleness` the mean over samples, in policy
    versions. `duplicates` are windows of processes that hold a rank another one counts.
    """

    task: str
    role: str
    start_s: float
    end_s: float
    ranks: int
    covered_s: float
    tokens_per_s: float | None
    samples_per_s: float | None
    episodes_per_s: float | None
    steps_per_s: float | None
    idle: float | None
    staleness: float | None
    stalest: float | None
    queues: tuple[QueueLength, ...]
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class RankTotal:
    """What one data-parallel rank did over all that was recorded; None: never counted, or never told."""

    dp_rank: int
    covered_s: float
    waited_s: float | None
    tokens: float | None
    samples: float | None


class _Sums:
    """What one data-parallel rank did in one stretch."""

    __slots__ = ("counted", "counts", "covered_s", "stale", "stale_weight", "stalest", "waited_s", "waits")

    def __init__(self) -> None:
        self.counts = [0.0, 0.0, 0.0, 0.0]
        self.counted = 0  # one bit a count
        self.covered_s = self.waited_s = self.stale = self.stale_weight = 0.0
        self.stalest = -1.0
        self.waits = False

    def add(self, window: WorkWindow, share: float) -> None:
        """Add a share of a window."""
        counts = self.counts
        if window.tokens is not None:
            counts[0] += window.tokens * share
            self.counted |= 1
        if window.samples is not None:
            counts[1] += window.samples * share
            self.counted |= 2
        if window.episodes is not None:
            counts[2] += window.episodes * share
            self.counted |= 4
        if window.steps is not None:
            counts[3] += window.steps * share
            self.counted |= 8
        length_s = window.length_s
        self.covered_s += length_s * share
        if window.waiting_s is not None:
            self.waited_s += min(window.waiting_s, length_s) * share
            self.waits = True
        if window.staleness is not None:
            weight = (window.samples or 1.0) * share
            self.stale += window.staleness * weight
            self.stale_weight += weight
            self.stalest = max(self.stalest, window.staleness if window.stalest is None else window.stalest)


_Queue = tuple[float, float, float]
"""When it was looked at last, how long it was then, and the longest it was."""


@dataclass
class _Role:
    sums: dict[tuple[int, int], _Sums] = field(default_factory=dict)  # (stretch, rank)
    queues: dict[int, dict[str, _Queue]] = field(default_factory=dict)  # by stretch
    held: dict[int, list[list[float]]] = field(default_factory=dict)  # rank: [source, start, end]
    duplicates: int = 0


class Ledger:
    """Takes windows in any order of processes, and gives rates over stretches of `every_s` seconds.

    Stretches are those of the axis that all clocks are put on.
    """

    def __init__(self, every_s: float = 60.0) -> None:
        self._every_s = every_s
        self._axis = Axis()
        self._sources: dict[str, int] = {}
        self._roles: dict[tuple[str, str], _Role] = {}

    def add(self, window: WorkWindow) -> None:
        """Add a window, unless another process counts the same rank at that time."""
        role = self._roles.get((window.task, window.role))
        if role is None:
            role = self._roles[window.task, window.role] = _Role()
        end_s = self._axis.end_s(window)
        start_s = end_s - window.length_s
        source = self._sources.setdefault(window.source, len(self._sources))
        if _is_held(role.held.setdefault(window.dp_rank, []), source, start_s, end_s):
            role.duplicates += 1
            return
        self._spread(role, window, start_s, end_s)

    def _spread(self, role: _Role, window: WorkWindow, start_s: float, end_s: float) -> None:
        first, last = int(start_s // self._every_s), math.ceil(end_s / self._every_s) - 1
        for stretch in range(first, last + 1):
            sums = role.sums.get((stretch, window.dp_rank))
            if sums is None:
                sums = role.sums[stretch, window.dp_rank] = _Sums()
            if first == last:
                sums.add(window, 1.0)
            else:
                inside = min(end_s, (stretch + 1) * self._every_s) - max(start_s, stretch * self._every_s)
                sums.add(window, inside / (end_s - start_s))
        if window.queues:
            _note_queues(role.queues.setdefault(last, {}), window, end_s)

    def rates(self) -> Iterator[Rate]:
        """Give the rates of every role and stretch in which something was recorded, in order."""
        for (task, name), role in sorted(self._roles.items()):
            for stretch, sums in _stretches(role):
                start_s = stretch * self._every_s
                queues = role.queues.get(stretch, {})
                yield _rate(task, name, start_s, start_s + self._every_s, [sums], _lengths([queues]), 0)

    def totals(self) -> Iterator[Rate]:
        """Give the rate of every role over all that was recorded."""
        for (task, name), role in sorted(self._roles.items()):
            stretches = list(_stretches(role))
            if not stretches:
                continue
            start_s, end_s = stretches[0][0] * self._every_s, (stretches[-1][0] + 1) * self._every_s
            queues = _lengths([queues for _, queues in sorted(role.queues.items())])
            sums = [each for _, each in stretches]
            yield _rate(task, name, start_s, end_s, sums, queues, role.duplicates)

    def ranks(self) -> Iterator[tuple[str, str, tuple[RankTotal, ...]]]:
        """Give task, role and the totals of each of its ranks."""
        for (task, name), role in sorted(self._roles.items()):
            of: dict[int, list[_Sums]] = {}
            for (_, rank), sums in role.sums.items():
                of.setdefault(rank, []).append(sums)
            yield task, name, tuple(_rank_total(rank, of[rank]) for rank in sorted(of))


def _rank_total(rank: int, every: list[_Sums]) -> RankTotal:
    done = [
        sum(sums.counts[place] for sums in every)
        if any(sums.counted >> place & 1 for sums in every)
        else None
        for place in range(2)
    ]
    waited = sum(sums.waited_s for sums in every) if any(sums.waits for sums in every) else None
    return RankTotal(rank, sum(sums.covered_s for sums in every), waited, *done)


def _stretches(role: _Role) -> Iterator[tuple[int, dict[int, _Sums]]]:
    """Give the stretches in order, each with the sums of its ranks."""
    for stretch, group in groupby(sorted(role.sums), key=lambda key: key[0]):
        yield stretch, {rank: role.sums[stretch, rank] for _, rank in group}


def _note_queues(queues: dict[str, _Queue], window: WorkWindow, end_s: float) -> None:
    for name, length in window.queues.items():
        then, last, longest = queues.get(name, (end_s, length, 0.0))
        most = max(longest, window.longest.get(name, length))
        queues[name] = (end_s, length, most) if end_s >= then else (then, last, most)


def _lengths(by_stretch: list[dict[str, _Queue]]) -> tuple[QueueLength, ...]:
    """Join queues over stretches in order: the last length, and the longest."""
    found: dict[str, QueueLength] = {}
    for queues in by_stretch:
        for name, (_, last, longest) in queues.items():
            before = found[name].longest if name in found else 0.0
            found[name] = QueueLength(name, last, max(longest, before))
    return tuple(found[name] for name in sorted(found))


def _is_held(spans: list[list[float]], source: int, start_s: float, end_s: float) -> bool:
    """Tell whether another process counts the rank in the middle of this window; else note it."""
    own = None
    middle = (start_s + end_s) / 2
    for span in spans:
        if span[0] == source:
            own = span
        elif span[1] <= middle <= span[2]:
            return True
    if own is None:
        spans.append([source, start_s, end_s])
    else:
        own[1], own[2] = min(own[1], start_s), max(own[2], end_s)
    return False


def _rate(
    task: str,
    role: str,
    start_s: float,
    end_s: float,
    stretches: list[dict[int, _Sums]],
    queues: tuple[QueueLength, ...],
    duplicates: int,
) -> Rate:
    """Join ranks and stretches: ranks work side by side, stretches one after the other."""
    every = [sums for stretch in stretches for sums in stretch.values()]
    covered_s = sum(max(sums.covered_s for sums in stretch.values()) for stretch in stretches)
    rank_s = sum(sums.covered_s for sums in every)
    rates: list[float | None] = []
    for place in range(len(_COUNTS)):
        counted = any(sums.counted >> place & 1 for sums in every)
        done = sum(sums.counts[place] for sums in every)
        rates.append(done / covered_s if counted and covered_s > 0 else None)
    ranks = {rank for stretch in stretches for rank in stretch}
    steps = rates[3]
    weight = sum(sums.stale_weight for sums in every)
    waits = any(sums.waits for sums in every)
    return Rate(
        task,
        role,
        start_s,
        end_s,
        len(ranks),
        covered_s,
        rates[0],
        rates[1],
        rates[2],
        None if steps is None else steps / len(ranks),  # all ranks take the same step together
        sum(sums.waited_s for sums in every) / rank_s if waits and rank_s > 0 else None,
        sum(sums.stale for sums in every) / weight if weight > 0 else None,
        max((sums.stalest for sums in every if sums.stalest >= 0), default=None),
        queues,
        duplicates,
    )

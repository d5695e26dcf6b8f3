"""Add up windows into rates: by role and by stretch of time, every data-parallel rank once.

Streams are read one after the other and only sums are kept, so memory grows with the hours and the
ranks, not with the lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.readers import ReaderFacts, paths_of, read_work
from libra_plan.planner.telemetry.work_windows import ClockAxis, SkippedRecord, WorkWindow
from libra_plan.profiles.counting import counted
from libra_plan.profiles.physics import BALANCE

__all__ = [
    "Imbalance",
    "Ledger",
    "QueueLength",
    "RankTotal",
    "Rate",
    "ThroughputReport",
    "imbalances",
    "throughput",
]


@dataclass(frozen=True, slots=True)
class QueueLength:
    """A queue at the end of a stretch (`last`), and the longest it was."""

    name: str
    last: float
    longest: float


@dataclass(frozen=True, slots=True)
class Rate:
    """What a role did from `start_s` to `end_s` (seconds since 1970 where the recording has them).

    Rates are those of all its data-parallel ranks together, per second of the time that was recorded
    (`covered_s`); None where nothing was counted or no time passed. `idle` is the share of that time
    its ranks waited, as the mean over ranks; `staleness` the mean over samples, in policy versions.
    `duplicates` are windows of processes that hold a rank another one counts.
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
    """How long one data-parallel rank was recorded, and waited (None: it was never timed)."""

    dp_rank: int
    covered_s: float
    waited_s: float | None


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Counts of a role that cannot all be true: a stable code, whose they are, and a sentence."""

    code: str
    task: str
    role: str
    text: str


@dataclass(frozen=True, slots=True)
class ThroughputReport:
    """The throughput of every role: in all and by stretch, with what does not add up or was left out."""

    totals: tuple[Rate, ...]
    stretches: tuple[Rate, ...]
    unbalanced: tuple[Imbalance, ...]
    left_out: tuple[SkippedRecord, ...]

    def to_prometheus(self) -> str:
        """Return the newest rates as metrics, for a node exporter's textfile collector."""
        from libra_plan.planner.telemetry.exposition import rates_as_metrics

        return rates_as_metrics(self.stretches)


def throughput(
    recordings: str | Path | Iterable[str | Path],
    *,
    reader: str = "counter",
    task: str = "",
    gpus: int | None = None,
    samples: int | None = None,
    every_s: float = 60.0,
) -> ThroughputReport:
    """Add up what every role gets done: tokens, samples and steps a second, waiting, queues, staleness.

    Parameters
    ----------
    recordings
        A file, or a folder that counters write to, or several of them.
    reader
        `counter` for `libra_plan.counter`, or whose metrics the files hold: `verl`, `nemo-rl`, `slime`,
        `vllm`.
    task, gpus, samples
        What a log may not say: the task, the GPUs of the run, the samples of a step.
    every_s
        Length of a stretch in seconds.

    Returns
    -------
    ThroughputReport
        Rates over all that was recorded and by stretch. What is unknown is None.

    Raises
    ------
    InputError
        There is no recording, or no window of it could be read.

    Examples
    --------
    >>> import libra_plan as lp
    >>> counter = lp.counter("telemetry", task="agent", role="actor")
    >>> counter.add(tokens=4096, samples=8)
    >>> counter.close()
    >>> (rate,) = lp.throughput("telemetry").totals
    >>> rate.task, rate.role, rate.ranks, rate.steps_per_s
    ('agent', 'actor', 1, None)
    """
    left_out: list[SkippedRecord] = []
    ledger = Ledger(every_s)
    paths = paths_of(recordings)
    windows = read_work(paths, reader, ReaderFacts(task, gpus, samples), left_out)
    unbalanced = tuple(imbalances(ledger.adding(windows)))
    totals = tuple(ledger.totals())
    if not totals:
        first = f"first: {left_out[0].where}: {left_out[0].reason}" if left_out else "record for longer"
        raise InputError(
            "no window could be read",
            got=counted(len(left_out), "line was", "lines were") + " left out" if left_out else "no line",
            way_out=first,
        )
    return ThroughputReport(totals, tuple(ledger.rates()), unbalanced, tuple(left_out))


class _Sums:
    """What one data-parallel rank did in one stretch; counts and waits are None until there are any."""

    __slots__ = ("counts", "covered_s", "stale", "stale_weight", "stalest", "waited_s")

    def __init__(self) -> None:
        self.counts: list[float | None] = [None, None, None, None]
        self.waited_s: float | None = None
        self.stalest: float | None = None
        self.covered_s = self.stale = self.stale_weight = 0.0

    def add(self, window: WorkWindow, share: float) -> None:
        """Add a share of a window."""
        counts, length_s = self.counts, window.length_s
        done = (window.tokens, window.samples, window.episodes, window.steps)
        for place, count in enumerate(done):
            if count is not None:
                counts[place] = (counts[place] or 0.0) + count * share
        self.covered_s += length_s * share
        if window.waiting_s is not None:
            self.waited_s = (self.waited_s or 0.0) + min(window.waiting_s, length_s) * share
        if window.staleness is not None:
            weight = (window.samples or 1.0) * share
            self.stale += window.staleness * weight
            self.stale_weight += weight
            stalest = window.staleness if window.stalest is None else window.stalest
            self.stalest = max(self.stalest or 0.0, stalest)


def _total(values: Iterable[float | None]) -> float | None:
    """Add the known values; None where none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


_Queue = tuple[float, float, float]
"""When it was looked at last, how long it was then, and the longest it was."""
_Stretch = dict[int, _Sums]
"""The sums of each rank in a stretch."""


@dataclass
class _Role:
    sums: dict[tuple[int, int], _Sums] = field(default_factory=dict)  # (stretch, rank)
    queues: dict[int, dict[str, _Queue]] = field(default_factory=dict)  # by stretch
    held: dict[int, dict[str, list[float]]] = field(default_factory=dict)  # rank: source: [start, end]
    duplicates: int = 0

    def stretches(self) -> Iterator[tuple[int, _Stretch]]:
        """Yield the stretches in order."""
        for stretch, group in groupby(sorted(self.sums), key=lambda key: key[0]):
            yield stretch, {rank: self.sums[stretch, rank] for _, rank in group}

    def is_held(self, window: WorkWindow, start_s: float, end_s: float) -> bool:
        """Whether another process counts the rank in the middle of this window; else note this one."""
        spans = self.held.setdefault(window.dp_rank, {})
        middle_s = (start_s + end_s) / 2
        for source, (from_s, to_s) in spans.items():
            if source != window.source and from_s <= middle_s <= to_s:
                return True
        own = spans.setdefault(window.source, [start_s, end_s])
        own[0], own[1] = min(own[0], start_s), max(own[1], end_s)
        return False


class Ledger:
    """Takes windows in any order of processes, and returns rates over stretches of `every_s` seconds.

    Stretches are those of the axis that all clocks are put on.
    """

    def __init__(self, every_s: float = 60.0) -> None:
        self._every_s = every_s
        self._axis = ClockAxis()
        self._roles: dict[tuple[str, str], _Role] = {}

    def adding(self, windows: Iterable[WorkWindow]) -> Iterator[WorkWindow]:
        """Add windows while they pass through."""
        for window in windows:
            self.add(window)
            yield window

    def add(self, window: WorkWindow) -> None:
        """Add a window, unless another process counts the same rank at that time."""
        role = self._roles.get((window.task, window.role))
        if role is None:
            role = self._roles[window.task, window.role] = _Role()
        end_s = self._axis.end_s(window)
        start_s = end_s - window.length_s
        if role.is_held(window, start_s, end_s):
            role.duplicates += 1
            return
        every_s = self._every_s
        first, last = int(start_s // every_s), math.ceil(end_s / every_s) - 1
        for stretch in range(first, last + 1):
            sums = role.sums.get((stretch, window.dp_rank))
            if sums is None:
                sums = role.sums[stretch, window.dp_rank] = _Sums()
            inside_s = min(end_s, (stretch + 1) * every_s) - max(start_s, stretch * every_s)
            sums.add(window, 1.0 if first == last else inside_s / (end_s - start_s))
        queues = role.queues.setdefault(last, {}) if window.queues else {}
        for name, length in window.queues.items():
            then_s, newest, longest = queues.get(name, (end_s, length, 0.0))
            longest = max(longest, window.longest.get(name, length))
            queues[name] = (end_s, length, longest) if end_s >= then_s else (then_s, newest, longest)

    def rates(self) -> Iterator[Rate]:
        """Yield the rates of every role and stretch in which something was recorded, in order."""
        for key, role in sorted(self._roles.items()):
            for stretch, sums in role.stretches():
                begin_s = stretch * self._every_s
                queues = _queue_lengths([role.queues.get(stretch, {})])
                yield _rate(key, (begin_s, begin_s + self._every_s), [sums], queues, 0)

    def totals(self) -> Iterator[Rate]:
        """Yield the rate of every role over all that was recorded."""
        for key, role in sorted(self._roles.items()):
            stretches = list(role.stretches())
            if stretches:
                span = (stretches[0][0] * self._every_s, (stretches[-1][0] + 1) * self._every_s)
                queues = _queue_lengths([queues for _, queues in sorted(role.queues.items())])
                yield _rate(key, span, [sums for _, sums in stretches], queues, role.duplicates)

    def ranks(self) -> Iterator[tuple[str, str, tuple[RankTotal, ...]]]:
        """Yield task, role and the totals of each of its ranks."""
        for (task, name), role in sorted(self._roles.items()):
            of: dict[int, list[_Sums]] = {}
            for (_, rank), sums in role.sums.items():
                of.setdefault(rank, []).append(sums)
            totals = (
                RankTotal(
                    rank,
                    sum(sums.covered_s for sums in every),
                    _total(sums.waited_s for sums in every),
                )
                for rank, every in sorted(of.items())
            )
            yield task, name, tuple(totals)


def _queue_lengths(by_stretch: Iterable[Mapping[str, _Queue]]) -> tuple[QueueLength, ...]:
    """Join queues over stretches in order: the last length, and the longest."""
    found: dict[str, QueueLength] = {}
    for queues in by_stretch:
        for name, (_, last, longest) in queues.items():
            before = found[name].longest if name in found else 0.0
            found[name] = QueueLength(name, last, max(longest, before))
    return tuple(found[name] for name in sorted(found))


def _rate(
    key: tuple[str, str],
    span: tuple[float, float],
    stretches: Sequence[_Stretch],
    queues: tuple[QueueLength, ...],
    duplicates: int,
) -> Rate:
    """Join ranks and stretches: ranks work side by side, stretches one after the other."""
    every = [sums for stretch in stretches for sums in stretch.values()]
    ranks = {rank for stretch in stretches for rank in stretch}
    covered_s = sum(max(sums.covered_s for sums in stretch.values()) for stretch in stretches)
    rank_s = sum(sums.covered_s for sums in every)
    done = [_total(sums.counts[place] for sums in every) for place in range(4)]
    rates = [None if count is None or covered_s <= 0 else count / covered_s for count in done]
    waited_s = _total(sums.waited_s for sums in every)
    weight = sum(sums.stale_weight for sums in every)
    return Rate(
        *key,
        *span,
        ranks=len(ranks),
        covered_s=covered_s,
        tokens_per_s=rates[0],
        samples_per_s=rates[1],
        episodes_per_s=rates[2],
        steps_per_s=None if rates[3] is None else rates[3] / len(ranks),  # all ranks take a step together
        idle=None if waited_s is None or rank_s <= 0 else waited_s / rank_s,
        staleness=sum(sums.stale for sums in every) / weight if weight > 0 else None,
        stalest=max((sums.stalest for sums in every if sums.stalest is not None), default=None),
        queues=queues,
        duplicates=duplicates,
    )


def imbalances(windows: Iterable[WorkWindow]) -> Iterator[Imbalance]:
    """Compare the tokens counted per step with those that batch and length imply.

    A pass over whole sequences goes over batch × length tokens a step, a decoding step writes one per
    sequence. Tokens that are a whole multiple of that were counted by every rank of a group (A053).
    """
    found: dict[tuple[str, str], tuple[float, float, float]] = {}  # tokens, passed over, written
    for window in windows:
        if window.tokens and window.steps and window.batch_sequences and window.seq_len_tokens:
            tokens, passed, written = found.get((window.task, window.role), (0.0, 0.0, 0.0))
            sequences = window.steps * window.batch_sequences
            passed += sequences * window.seq_len_tokens
            found[window.task, window.role] = (tokens + window.tokens, passed, written + sequences)
    for (task, role), (tokens, passed, written) in sorted(found.items()):
        if not (passed > 0 and written > 0):
            continue  # so small that their products are 0
        # padding may be counted or not: as much above as below
        if not any(1 / BALANCE[1] <= ratio <= BALANCE[1] for ratio in (tokens / passed, tokens / written)):
            ratio, whole = tokens / passed, round(tokens / passed)
            text = f"tokens counted per step are {ratio:.3g} × batch_sequences × seq_len_tokens"
            if whole >= 2 and abs(ratio / whole - 1) < 0.01:
                text += f": counted {whole} times over, by every rank of a group?"
            yield Imbalance("tokens-unbalanced", task, role, text)

"""Roll out one step on replicas of different layouts, each serving a range of the lengths.

Long trajectories are slow one by one, so they need few neighbours and many GPUs each; short ones
need throughput, so many share a small replica. Sorted by response length, longest first, every
replica takes a contiguous range. A predictor must rank the lengths in advance; its error widens
`high` (`ranking_error`).

A replica that serves positions [i, j) all at once takes exactly

    T = a·L_i + W_j − W_i

with W the prefix sums of token work. Where slots or KV tokens do not hold the range at once, the steps are
those of in-order list scheduling from i on; one pass from i gives the steps of every j. For a makespan T the
furthest position of a replica is found by bisection. Starting later never ends earlier, so going as far as
possible is best, and the furthest position that g GPUs reach follows from those of fewer GPUs. T itself is
bisected. Uniform layouts dealt round-robin by rank are compared too, so the answer is never slower than the
best of them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.lengths import FloatArray, IntArray
from libra_plan.models.parallelism import Layout, RangedReplica
from libra_plan.models.quantities import Estimate, Origin, weakest
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.makespan import Trajectories, makespan_s, token_work_s

__all__ = ["MixedRollout", "RangeReach", "RangedReplica", "ReplicaKind", "mixed_rollout", "reach_of"]

_CLOSE = 1e-6
"""Bisection ends when no makespan shorter by this share is left untried."""
_LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class ReplicaKind:
    """A layout that replicas may have, and what times it.

    `admission` is what one replica may run at once. `prefill_s` holds the seconds of prefill per
    trajectory, in the order of the trajectories (shape (n,)); they block decoding.
    """

    layout: Layout
    coefficients: DecodeCoefficients
    admission: Admission
    prefill_s: FloatArray | None = None
    origin: Origin = Origin.INTERPOLATED


@dataclass(frozen=True)
class MixedRollout:
    """The replicas, longest trajectories first, with the seconds until the slowest is done.

    `expected_s` is the mean over the rankings drawn, or the value of `makespan_s` where lengths are
    ranked without error. `order` maps positions to the trajectories that were given. `uniform_s` is what the
    best single layout takes, dealt by the same ranking, and `uniform` that layout; None when none can.
    """

    makespan_s: Estimate
    expected_s: float
    replicas: tuple[RangedReplica, ...]
    order: tuple[int, ...]
    uniform: Layout | None
    uniform_s: float | None

    @property
    def gpus(self) -> int:
        """Count the GPUs used."""
        return sum(replica.layout.gpus_per_replica for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class _Piece:
    """One replica before it is timed."""

    kind: ReplicaKind
    start: int
    stop: int
    stride: int = 1


def mixed_rollout(
    trajectories: Trajectories,
    kinds: Sequence[ReplicaKind],
    gpus: int,
    *,
    ranking_error: float = 0.0,
    rng: np.random.Generator | None = None,
    rankings: int = 100,
) -> MixedRollout:
    """Choose layouts and ranges so that the step's rollout ends soonest on at most `gpus` GPUs.

    `ranking_error` is the standard deviation of ln(predicted ÷ true length) of whatever ranks the
    trajectories; with it `high` is the 95 % quantile over so many `rankings` drawn with `rng`,
    where each replica gets the ranks that were meant for it. Replica sizes that divide each other pack into
    whole nodes without gaps. With tool waits ranges are chosen by an upper bound (all waits of
    every round of admission are added) and the time given is that of the event simulation.
    """
    usable = [kind for kind in kinds if kind.layout.gpus_per_replica <= gpus]
    step = _Step.of(trajectories)
    uniform_s, uniform = _best_uniform(step, usable, gpus)
    pieces = _Search(step, usable, gpus).best()
    if not pieces or max(step.times_s(pieces)) > uniform_s:
        pieces = uniform
    if not pieces:
        raise _nothing_serves(trajectories, kinds, gpus)
    times = step.times_s(pieces)
    seconds = high = expected = max(times)
    if ranking_error > 0:
        if rng is None:
            raise ValueError("rankings with an error are drawn with an rng")
        drawn = _misranked_s(step, pieces, ranking_error, rng, rankings)
        high, expected = max(high, float(np.quantile(drawn, _LEVEL))), float(np.mean(drawn))
    error = max(piece.kind.coefficients.error for piece in pieces)
    origin = weakest(*(piece.kind.origin for piece in pieces))
    return MixedRollout(
        Estimate(seconds, seconds * max(1 - error, 0.0), high * (1 + error), "s", origin),
        expected,
        tuple(
            RangedReplica(piece.kind.layout, piece.start, piece.stop, piece.stride, own)
            for piece, own in zip(pieces, times, strict=True)
        ),
        tuple(step.order.tolist()),
        uniform[0].kind.layout if uniform else None,
        uniform_s if uniform else None,
    )


def _nothing_serves(work: Trajectories, kinds: Sequence[ReplicaKind], gpus: int) -> RefusedError:
    room = [f"{kind.layout}: {kind.admission.tokens:.0f} tokens" for kind in kinds]
    return RefusedError(
        "no mix of layouts can serve every trajectory",
        got=f"{gpus} GPUs, longest context {int(work.final_context.max())} tokens",
        allowed="; ".join(room) or "none",
        way_out="allow a layout with more GPUs per replica, or shorten the responses",
    )


@dataclass(frozen=True, eq=False)
class _Step:
    """The trajectories by rank, longest response first."""

    ranked: Trajectories
    order: IntArray

    @staticmethod
    def of(work: Trajectories) -> _Step:
        order = np.argsort(-work.response_tokens, kind="stable")
        return _Step(_taken(work, order), order)

    def prefill_s(self, kind: ReplicaKind) -> FloatArray | None:
        """Return the seconds of prefill by rank."""
        return None if kind.prefill_s is None else kind.prefill_s[self.order]

    def time_s(self, kind: ReplicaKind, at: IntArray) -> float:
        """Return the seconds of one replica that serves these positions."""
        if not len(at):
            return 0.0
        prefill = self.prefill_s(kind)
        own = None if prefill is None else prefill[at]
        return makespan_s(_taken(self.ranked, at), kind.coefficients, kind.admission, 1, own)

    def times_s(self, pieces: Sequence[_Piece]) -> list[float]:
        """Return the seconds of each replica."""
        return [self.time_s(each.kind, np.arange(each.start, each.stop, each.stride)) for each in pieces]


def _taken(work: Trajectories, at: IntArray) -> Trajectories:
    return replace(work, prompt_tokens=work.prompt_tokens[at], response_tokens=work.response_tokens[at])


class _Search:
    """Find the least makespan of contiguous ranges."""

    def __init__(self, step: _Step, kinds: Sequence[ReplicaKind], gpus: int) -> None:
        self.gpus, self.count, self.kinds = gpus, len(step.ranked), kinds
        self.sizes = [kind.layout.gpus_per_replica for kind in kinds]
        self.reaches: list[RangeReach] = [
            reach_of(step.ranked, kind.coefficients, kind.admission, step.prefill_s(kind)) for kind in kinds
        ]

    def best(self) -> list[_Piece]:
        """Bisect the makespan between what no plan can beat and the best plan seen; [] when none is."""
        path = self._path(math.inf)
        if path is None:
            return []
        low, high = min(reach.time_s(0, 1) for reach in self.reaches), self._makespan(path)
        while low < high * (1 - _CLOSE):
            middle = (low + high) / 2
            better = self._path(middle)
            if better is None:
                low = middle
            else:
                path, high = better, min(self._makespan(better), middle)
        return [_Piece(self.kinds[kind], start, stop) for kind, start, stop in path]

    def _makespan(self, path: list[tuple[int, int, int]]) -> float:
        return max(self.reaches[kind].time_s(start, stop) for kind, start, stop in path)

    def _path(self, seconds: float) -> list[tuple[int, int, int]] | None:
        """Cover all positions within `seconds`: (kind, start, stop) of each replica, or None.

        With g GPUs one gets furthest from the furthest that g minus a replica's size reach.
        """
        furthest = [reach.furthest(seconds) for reach in self.reaches]
        reached = [0] * (self.gpus + 1)
        came = [-1] * (self.gpus + 1)  # the kind of the last replica; -1: the last GPU idles
        for used in range(1, self.gpus + 1):
            reached[used] = reached[used - 1]
            for kind, size in enumerate(self.sizes):
                if size <= used:
                    stop = furthest[kind](reached[used - size])
                    if stop > reached[used]:
                        reached[used], came[used] = stop, kind
            if reached[used] == self.count:
                return self._back(reached, came, used)
        return None

    def _back(self, reached: list[int], came: list[int], used: int) -> list[tuple[int, int, int]]:
        path = []
        while used:
            kind = came[used]
            before = used - (1 if kind < 0 else self.sizes[kind])
            if kind >= 0:
                path.append((kind, reached[before], reached[used]))
            used = before
        return path[::-1]


def _best_uniform(step: _Step, kinds: Sequence[ReplicaKind], gpus: int) -> tuple[float, list[_Piece]]:
    """Return the best single layout, with all trajectories dealt by rank; (inf, []) when none fits."""
    count, longest = len(step.ranked), float(step.ranked.final_context.max())
    best: tuple[float, list[_Piece]] = (math.inf, [])
    for kind in kinds:
        if longest > kind.admission.tokens:
            continue
        number = min(gpus // kind.layout.gpus_per_replica, count)
        seconds = makespan_s(step.ranked, kind.coefficients, kind.admission, number, step.prefill_s(kind))
        if seconds < best[0]:
            best = (seconds, [_Piece(kind, at, count, number) for at in range(number)])
    return best


def _misranked_s(
    step: _Step, pieces: Sequence[_Piece], error: float, rng: np.random.Generator, rankings: int
) -> list[float]:
    """Return the makespans when ranks are drawn with an error.

    A trajectory that does not fit where its rank sent it goes to the replica with most room.
    """
    roomiest = max(range(len(pieces)), key=lambda number: pieces[number].kind.admission.tokens)
    contexts, logs = step.ranked.final_context, np.log(step.ranked.response_tokens)
    found = []
    for _ in range(rankings):
        seen = np.argsort(-(logs + rng.normal(0.0, error, len(logs))), kind="stable")
        sent = [seen[piece.start : piece.stop : piece.stride] for piece in pieces]
        fits = [contexts[at] <= piece.kind.admission.tokens for at, piece in zip(sent, pieces, strict=True)]
        served = [at[ok] for at, ok in zip(sent, fits, strict=True)]
        moved = [at[~ok] for at, ok in zip(sent, fits, strict=True)]
        served[roomiest] = np.concatenate([served[roomiest], *moved])
        found.append(max(step.time_s(piece.kind, at) for piece, at in zip(pieces, served, strict=True)))
    return found


@dataclass
class _Pass:
    """List scheduling from one start: the steps until each further trajectory's prefix is done."""

    running: list[tuple[int, int, int]] = field(default_factory=list)  # (end, context, round)
    now: int = 0
    used: int = 0
    round: int = 1
    steps: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)

    def admit(self, length: int, context: int, admission: Admission) -> None:
        """Start the next trajectory as soon as a slot and room for its context are free."""
        while self.running and (
            len(self.running) >= admission.sequences or self.used + context > admission.tokens
        ):
            self.now, freed, round_ = heapq.heappop(self.running)
            self.used -= freed
            self.round = max(self.round, round_ + 1)
        end = self.now + length
        heapq.heappush(self.running, (end, context, self.round))
        self.used += context
        self.steps.append(max(end, self.steps[-1] if self.steps else 0))
        self.rounds.append(self.round)


class RangeReach:
    """Times of ranges on one kind of replica, and the furthest range within a time."""

    def __init__(
        self,
        fixed_s: float,
        lengths: IntArray,
        contexts: IntArray,
        work_s: FloatArray,
        admission: Admission,
        wait_s: float,
    ) -> None:
        self._fixed_s, self._wait_s, self._admission = fixed_s, wait_s, admission
        self._first = fixed_s * lengths
        self._lengths: list[int] = lengths.tolist()
        self._contexts: list[int] = contexts.tolist()
        self._work = np.concatenate(([0.0], np.cumsum(work_s)))
        self._work_list: list[float] = self._work.tolist()
        self._at_once: list[int] = _held_at_once(contexts, admission).tolist()
        self._passes: dict[int, _Pass] = {}

    def time_s(self, start: int, stop: int) -> float:
        """Return the seconds of [start, stop); inf when one of them does not fit alone."""
        steps, rounds = self._steps(start, stop)
        work = self._work_list[stop] - self._work_list[start]
        return self._fixed_s * steps + work + self._wait_s * rounds

    def furthest(self, seconds: float) -> Callable[[int], int]:
        """Return the map from a start to the furthest stop that `seconds` allow."""
        ends = self._work[:-1] + (seconds - self._wait_s) - self._first
        reached: list[int] = np.maximum(np.searchsorted(self._work, ends, side="right") - 1, 0).tolist()

        count = len(self._lengths)

        def stop(start: int) -> int:
            if start == count:
                return start
            held = self._at_once[start]
            closed = reached[start]
            if closed < held or held == count:
                return max(min(closed, held), start)
            return self._beyond(start, held, seconds)

        return stop

    def _beyond(self, start: int, held: int, seconds: float) -> int:
        """Bisect where the range is no longer held at once; the pass is only run as far as needed."""
        if held == start:
            return start  # the first does not fit even alone
        low, stride = held, 1
        high = min(held + stride, len(self._lengths))
        while low < high and self.time_s(start, high) <= seconds:
            stride *= 2
            low, high = high, min(high + stride, len(self._lengths))
        while high - low > 1:
            middle = (low + high) // 2
            if self.time_s(start, middle) <= seconds:
                low = middle
            else:
                high = middle
        return low

    def _steps(self, start: int, stop: int) -> tuple[float, int]:
        if stop <= self._at_once[start]:
            return self._lengths[start], 1
        run = self._passes.setdefault(start, _Pass())
        while start + len(run.steps) < stop:
            at = start + len(run.steps)
            if self._contexts[at] > self._admission.tokens:
                return math.inf, 1
            run.admit(self._lengths[at], self._contexts[at], self._admission)
        return run.steps[stop - start - 1], run.rounds[stop - start - 1]


def _held_at_once(contexts: IntArray, admission: Admission) -> IntArray:
    """Return for each start the furthest stop whose trajectories are all admitted at once."""
    sums = np.concatenate(([0], np.cumsum(contexts)))
    starts = np.arange(len(contexts))
    by_tokens = np.searchsorted(sums, sums[:-1] + admission.tokens, side="right") - 1
    held: IntArray = np.minimum(by_tokens, np.minimum(starts + admission.sequences, len(contexts)))
    return held


def reach_of(
    ranked: Trajectories,
    coefficients: DecodeCoefficients,
    admission: Admission,
    prefill_s: FloatArray | None = None,
) -> RangeReach:
    """Prepare one kind of replica for trajectories sorted by response, longest first.

    With tool waits a range is charged all waits of a trajectory for every round of admission, an
    upper bound where all are admitted at once.
    """
    work = token_work_s(ranked, coefficients)
    return RangeReach(
        coefficients.fixed_s,
        ranked.response_tokens,
        ranked.final_context,
        work if prefill_s is None else work + prefill_s,
        admission,
        ranked.turns * ranked.tool_wait_s,
    )

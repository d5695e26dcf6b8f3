"""How far down the length-sorted trajectories one replica gets in a given time.

Position 0 is the longest. A replica that serves [i, j) all at once takes, exactly,

    T = a·L_i + W_j − W_i

with W the prefix sums of token work: constant time by two look-ups. Where slots or KV tokens do not
hold the range at once, the steps are those of in-order list scheduling from i on. Admission is in
order, so later trajectories never move earlier ones: one pass from i gives the steps of every j, and
is kept as far as it was needed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from libra_plan.models.admission import Admission
from libra_plan.models.fit import DecodeCoefficients
from libra_plan.models.lengths import FloatArray, IntArray
from libra_plan.models.rollout import Trajectories, token_work_s

__all__ = ["Reach", "reach_of"]


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


class Reach:
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
        """Give the seconds of [start, stop); inf when one of them does not fit alone."""
        steps, rounds = self._steps(start, stop)
        work = self._work_list[stop] - self._work_list[start]
        return self._fixed_s * steps + work + self._wait_s * rounds

    def furthest(self, seconds: float) -> Callable[[int], int]:
        """Give the map from a start to the furthest stop that `seconds` allow."""
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
    """Give for each start the furthest stop whose trajectories are all admitted at once."""
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
) -> Reach:
    """Prepare one kind of replica for trajectories sorted by response, longest first.

    With tool waits a range is charged all waits of a trajectory for every round of admission, an
    upper bound where all are admitted at once.
    """
    work = token_work_s(ranked, coefficients)
    return Reach(
        coefficients.fixed_s,
        ranked.response_tokens,
        ranked.final_context,
        work if prefill_s is None else work + prefill_s,
        admission,
        ranked.turns * ranked.tool_wait_s,
    )

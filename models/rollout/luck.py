"""How much luck with lengths moves a rollout: the same law drawn again and again.

A step's lengths are a sample; its longest responses decide the makespan, and these vary from step to
step. Steps are drawn anew from a fine sample of the law, and the makespan of each is compared with
that of the sample that was priced. All draws are scheduled at once, as arrays; tool waits are left
out of the ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.lengths import FloatArray, LengthSample
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.makespan import Trajectories, slot_steps, token_work_s

__all__ = ["Luck", "drawn_steps", "luck_of"]

ROUNDS = 200
_MANY_ROUNDS, _LEAST_ROUNDS = 64, 20
_FEW_LENGTHS, _MOST_LENGTHS = 32_768, 524_288
"""Lengths in all draws together: with many trajectories there is less luck, and fewer draws show it.

Beyond the first number of lengths there are 64 draws, beyond the second down to 20.
"""
_HEAP_ROWS = 8
"""So many schedules side by side are worth a call of numpy for every length; fewer go one by one."""


def drawn_steps(
    prompts: LengthSample,
    responses: LengthSample,
    count: int,
    rng: np.random.Generator,
    turns: int = 1,
    tool_wait_s: float = 0.0,
) -> Trajectories:
    """Draw steps of `count` trajectories with replacement; arrays of shape (steps, count).

    The samples should be finer than the step: a sample of `count` quantiles has no tail beyond its
    own longest, so its draws would show too little luck.
    """
    shape = (_rounds(count), count)
    return Trajectories(
        rng.choice(prompts.tokens, shape), rng.choice(responses.tokens, shape), turns, tool_wait_s
    )


def _rounds(count: int) -> int:
    many = max(_MANY_ROUNDS, min(ROUNDS, _FEW_LENGTHS // count))
    return min(many, max(_LEAST_ROUNDS, _MOST_LENGTHS // count))


@dataclass(frozen=True, eq=False)
class _Steps:
    """Many steps side by side: lengths, final contexts and token work, each (steps, n)."""

    lengths: FloatArray
    contexts: FloatArray
    work_s: FloatArray

    def makespans_s(self, fixed_s: float, admission: Admission, replicas: int) -> FloatArray:
        """Return the makespan of each step, dealt round-robin; shape (steps,)."""
        lengths, contexts = _dealt(self.lengths, replicas), _dealt(self.contexts, replicas)
        everything = float(contexts.sum(axis=1).max()) <= admission.tokens
        if lengths.shape[1] <= admission.sequences and everything:
            steps = lengths.max(axis=1)
        else:
            steps = _list_steps(lengths, contexts, admission)
        slowest: FloatArray = (fixed_s * steps + _dealt(self.work_s, replicas).sum(axis=1)).max(axis=1)
        return slowest

    def steady_s(self, fixed_s: float, slots: float, replicas: int) -> FloatArray:
        """Return the seconds per step of replicas that never drain; see `continuous_s`."""
        shared: FloatArray = (fixed_s * self.lengths.sum(axis=1) / slots + self.work_s.sum(axis=1)) / replicas
        return shared


@dataclass(frozen=True, eq=False)
class Luck:
    """The steps as drawn anew and as priced, on one kind of replica."""

    fixed_s: float
    drawn: _Steps
    priced: _Steps

    def makespan(self, admission: Admission, replicas: int) -> tuple[float, float]:
        """Return the median and the 95 % quantile of the makespan over its mean as priced."""
        return _ratios(
            self.drawn.makespans_s(self.fixed_s, admission, replicas),
            self.priced.makespans_s(self.fixed_s, admission, replicas),
        )

    def steady(self, admission: Admission, replicas: int) -> tuple[float, float]:
        """Return the same of the seconds per step of replicas that never drain."""
        slots = float(max(1, admission.sequences))
        return _ratios(
            self.drawn.steady_s(self.fixed_s, slots, replicas),
            self.priced.steady_s(self.fixed_s, slots, replicas),
        )


def luck_of(
    orders: Sequence[Trajectories],
    drawn: Trajectories,
    coefficients: DecodeCoefficients,
    prefill_s: Callable[[Trajectories], FloatArray] | None = None,
) -> Luck:
    """Prepare one kind of replica; `orders` are the priced ones, `drawn` from `drawn_steps`.

    `prefill_s` gives the seconds of prefill per trajectory.
    """

    def work(steps: Trajectories) -> FloatArray:
        seconds = token_work_s(steps, coefficients)
        return seconds if prefill_s is None else seconds + prefill_s(steps)

    priced = _Steps(
        np.stack([order.response_tokens for order in orders]).astype(float),
        np.stack([order.final_context for order in orders]).astype(float),
        np.stack([work(order) for order in orders]),
    )
    lengths, contexts = drawn.response_tokens.astype(float), drawn.final_context.astype(float)
    return Luck(coefficients.fixed_s, _Steps(lengths, contexts, work(drawn)), priced)


def _dealt(values: FloatArray, replicas: int) -> FloatArray:
    """Lay rows out as (steps, turns, replicas), the last turn filled up with zeros."""
    steps, count = values.shape
    turns = -(-count // replicas)
    table = values
    if turns * replicas != count:
        table = np.zeros((steps, turns * replicas))
        table[:, :count] = values
    return table.reshape(steps, turns, replicas)


def _list_steps(lengths: FloatArray, contexts: FloatArray, admission: Admission) -> FloatArray:
    """Count decode steps under in-order admission, all replicas of all steps side by side."""
    shape = (lengths.shape[0], lengths.shape[2])
    turns = lengths.transpose(1, 0, 2).reshape(lengths.shape[1], -1)
    held = contexts.transpose(1, 0, 2).reshape(turns.shape)
    slots = min(admission.sequences, len(turns))
    if _only_slots_bind(held, slots, admission.tokens):
        return _by_slots(turns, slots).reshape(shape)
    # a draw may be longer than anything priced: it then takes the whole cache
    return _by_tokens(turns, np.minimum(held, admission.tokens), slots, admission.tokens).reshape(shape)


def _only_slots_bind(held: FloatArray, slots: int, tokens: float) -> bool:
    """Whether the largest contexts that can be held at once always have room."""
    if slots * float(held.max()) <= tokens:
        return True
    largest = np.partition(held, len(held) - slots, axis=0)[len(held) - slots :]
    return float(largest.sum(axis=0).max()) <= tokens


def _by_slots(turns: FloatArray, slots: int) -> FloatArray:
    """Put each length where a slot is free first; slots hold the time they end. Gives (rows,)."""
    if turns.shape[1] < _HEAP_ROWS:
        return np.array([slot_steps(row.tolist(), slots) for row in turns.T])
    ends = turns[:slots].T.copy()
    flat, starts = ends.reshape(-1), np.arange(len(ends)) * slots
    for length in turns[slots:]:
        flat[starts + ends.argmin(axis=1)] += length
    last: FloatArray = ends.max(axis=1)
    return last


def _by_tokens(turns: FloatArray, held: FloatArray, slots: int, tokens: float) -> FloatArray:
    """Start each length when a slot and its context's tokens are free. Gives (rows,)."""
    rows = np.arange(turns.shape[1])
    ends = np.full((len(rows), slots), np.inf)  # inf: free
    kept = np.zeros_like(ends)
    now, used, last = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    running = np.zeros(len(rows), dtype=np.int64)
    for length, context in zip(turns, held, strict=True):
        short = np.flatnonzero((running >= slots) | (used + context > tokens))
        while len(short):
            first = ends[short].argmin(axis=1)
            now[short] = ends[short, first]
            used[short] -= kept[short, first]
            ends[short, first] = np.inf
            running[short] -= 1
            short = short[used[short] + context[short] > tokens]
        free = ends.argmax(axis=1)
        ends[rows, free], kept[rows, free] = now + length, context
        used += context
        running += 1
        np.maximum(last, now + length, out=last)
    return last


def _ratios(drawn: FloatArray, priced: FloatArray) -> tuple[float, float]:
    median, high = np.quantile(drawn, (0.5, 0.95)) / priced.mean()
    return float(median), float(high)

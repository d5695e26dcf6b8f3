"""The variation of a rollout's makespan with the drawn lengths.

A step's lengths are a sample; its longest responses decide the makespan, and these vary from step to
step. Steps are drawn again from a fine sample of the law, and the makespan of each is compared with
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
from libra_plan.models.rollout.makespan import Trajectories, token_work_s
from libra_plan.models.rollout.schedule import makespans_s

__all__ = ["Luck", "drawn_steps", "luck_of"]

ROUNDS = 200
_MANY_ROUNDS, _LEAST_ROUNDS = 64, 20
_FEW_LENGTHS, _MOST_LENGTHS = 32_768, 524_288
"""Lengths in all draws together: with many trajectories there is less luck, and fewer draws show it.

Beyond the first number of lengths there are 64 draws, beyond the second down to 20.
"""


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
        return makespans_s(self.lengths, self.contexts, self.work_s, fixed_s, admission, replicas)

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


def _ratios(drawn: FloatArray, priced: FloatArray) -> tuple[float, float]:
    median, high = np.quantile(drawn, (0.5, 0.95)) / priced.mean()
    return float(median), float(high)

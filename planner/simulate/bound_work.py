"""The least that steps take of GPUs and of time, whoever plans them: what `bound.py` charges.

Three things are scarce: GPU-seconds of the cluster, and two lines of time of each task, that of its rollouts
and that of its training (one and the same where stages follow each other). With a price on each, every step
costs at least what is counted here, in any form that the engine simulates:

- *Decoding.* A decode step of B trajectories with contexts that sum to C takes τ = F + p·B + q·C seconds of
  tp GPUs, and as much of each of the B trajectories. At λ a GPU-second and β a second of a trajectory it
  costs (λ·tp + Σβ)·τ ≥ [λ·tp·F + Σβ·p·B] + λ·tp·p·B + Σβ·F + q·Σ c·(λ·tp + β), with the context c of each.
  The bracket is at least the sum, over those that run, of the least over b in 1 … slots of λ·tp·F/b + β·p·b;
  and, since they hold Σ final ≤ room, at least that of λ·tp·F·final/room + β·p. Either way the cost is a sum
  over trajectories, and each has its cheapest tp: no dealing and no mix of replicas does better. Where
  trajectories may move (`routing`, `elastic`), each token has its cheapest tp: the least of lines in the
  context is concave, so that its mean over a trajectory is at least that of its two ends. What tools return
  is counted in what must be held, and else left out.
- *The line of the rollouts.* Where a step is generated before the next begins it takes as long as each of its
  trajectories, and so as any mean of them: a second of the line at ν is β = ν·w of each, with weights w that
  sum to 1; long ones get more, as w ~ tokens to the power `tail`. In a stream no more than M run at once, so
  their seconds sum to M × the time of the line at most, and β = ν/M.
- *Training.* m replicas with the stragglers' factors f₁ … f_m of the step, as they are drawn, share the work
  W in no less than W ÷ Σ 1/f seconds, on all of their GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from libra_plan.models.lengths import FloatArray
from libra_plan.planner.simulate.work import Work, stream
from libra_plan.planner.simulate.world import DecodeCosts, WorldTask

__all__ = ["Draws", "Floor", "Prices"]


def _joined(steps: tuple[Draws, ...]) -> Draws:
    """Put the trajectories of some steps one after the other."""
    return Draws(
        np.concatenate([each.prompts for each in steps]),
        np.concatenate([each.responses for each in steps]),
        np.concatenate([each.calls_s for each in steps]),
        np.concatenate([each.read for each in steps]),
        steps[0].slower,
    )


@dataclass(frozen=True)
class Prices:
    """What a GPU-second costs, and a second of a task's rollouts and of its training.

    `tail`: how much more of the rollouts' price long trajectories get than short ones.
    """

    gpu: float
    rollout: float
    train: float
    tail: float = 0.0


@dataclass(frozen=True)
class Draws:
    """The trajectories of a step as drawn: tokens, seconds of tool calls; and stragglers' factors.

    `read` are the tokens that tools return.
    """

    prompts: FloatArray
    responses: FloatArray
    calls_s: FloatArray
    read: FloatArray
    slower: FloatArray

    @cached_property
    def finals(self) -> FloatArray:
        """Give the whole sequences, tokens."""
        return self.prompts + self.responses + self.read

    @cached_property
    def tokens(self) -> float:
        """Sum the tokens of whole sequences."""
        return float(self.finals.sum())


@dataclass(frozen=True)
class Floor:
    """What a task's steps take at least, on a cluster of so many GPUs, under one seed.

    `by_room` lists the tp whose decode steps are counted by KV cache, and not by slots: either is a bound,
    but trajectories that run together must be counted alike.
    """

    task: WorldTask
    seed: int
    gpus: int
    by_room: frozenset[int] = frozenset()

    @property
    def streams(self) -> bool:
        """Tell whether rollouts never drain: trajectories of several steps are on their way."""
        return self.task.coupling == "async" and self.task.rollouts == "stream"

    @property
    def overlaps(self) -> bool:
        """Tell whether rollouts and training have time of their own."""
        return self.task.coupling == "async"

    @property
    def most_in_flight(self) -> int:
        """Count the trajectories that may run at once."""
        return self.task.samples * (1 + (self.task.staleness if self.streams else 0))

    @property
    def _most_gpus(self) -> int:
        return min(self.gpus, self.task.max_gpus or self.gpus)

    def draws(self, work: Work, step: int) -> Draws:
        """Draw a step as the engine does, without making trajectories of it."""
        drawn = work.lengths(step)
        train, most = self.task.costs.train, 0
        if train is not None:
            most = max(1, self._most_gpus // train.gpus)
        rng = stream(self.seed, "train", self.task.id, step)
        slower = np.exp(rng.normal(0.0, 0.0 if train is None else train.straggler_sigma, most))
        calls = np.zeros(len(drawn.prompts)) if drawn.calls_s is None else drawn.calls_s.sum(axis=1)
        read = (drawn.after_prompt - drawn.responses).astype(float)
        return Draws(drawn.prompts.astype(float), drawn.responses.astype(float), calls, read, slower)

    def counted(self, draws: Draws) -> Floor:
        """Choose how decode steps are counted, by the trajectories of one step."""
        weight = float(draws.responses.sum())
        usual = float((draws.responses * draws.finals).sum()) / weight
        room = (each.tp for each in self.task.costs.decode if usual * each.max_sequences > each.kv_tokens)
        return replace(self, by_room=frozenset(room))

    # ------------------------------------------------------------ one step

    def of_step(self, draws: Draws, prices: Prices) -> float:
        """Give the least cost of a whole step that is generated, scored and trained on for itself."""
        return float(self.of_steps((draws,), prices)[0])

    def of_steps(self, steps: Sequence[Draws], prices: Prices) -> FloatArray:
        """Give the least costs of some steps, all trajectories at once."""
        found = np.array([self._beside(draws, prices) for draws in steps])
        if self.task.costs.decode:
            found += (
                self.of_trajectories(_joined(tuple(steps)), prices, len(steps))
                .reshape(len(steps), -1)
                .sum(axis=1)
            )
        return found

    def _beside(self, draws: Draws, prices: Prices) -> float:
        """Give the least cost of a step without what each of its trajectories costs."""
        total = self.once(prices)
        for scoring in self.task.costs.scoring:
            line = 0.0 if self.overlaps else prices.train / max(1, self._most_gpus // scoring.gpus)
            total += (prices.gpu * scoring.gpus + line) * scoring.per_token_s * draws.tokens
        if self.task.costs.train is not None:
            total += self._trained(draws, prices)
        return total

    def once(self, prices: Prices) -> float:
        """Give what each step costs beside its stages: the hand-over of weights, or waking up."""
        costs, ways = self.task.costs, []
        if "separate" in self.task.arrangements:
            ways.append(costs.sync_s if costs.decode and costs.train else 0.0)
        if "colocated" in self.task.arrangements:
            ways.append(costs.wake_s * len(self.task.roles) if len(self.task.roles) > 1 else 0.0)
        return prices.train * min(ways, default=0.0)

    def of_trajectories(self, draws: Draws, prices: Prices, steps: int = 1) -> FloatArray:
        """Give the least cost of generating each trajectory of so many steps, one after the other."""
        if self.streams:
            beta = np.full(len(draws.responses), prices.rollout / self.most_in_flight)
        else:
            own = (draws.responses / draws.responses.max()).reshape(steps, -1) ** prices.tail
            beta = prices.rollout * (own / own.sum(axis=1, keepdims=True)).ravel()
        found: FloatArray = self._least(
            draws,
            lambda costs, contexts: self._decoded(draws, costs, prices.gpu, beta, contexts),
            lambda costs: draws.prompts * costs.prefill_s_per_token * (prices.gpu * costs.tp + beta),
        ) + (draws.calls_s * beta)
        return found

    def _least(
        self,
        draws: Draws,
        decoded: Callable[[DecodeCosts, FloatArray], FloatArray],
        prefilled: Callable[[DecodeCosts], FloatArray],
    ) -> FloatArray:
        """Give the least over all tp: of each trajectory, or of each of its tokens where it may move."""
        every, begin, end = self.task.costs.decode, draws.prompts, draws.prompts + draws.responses
        middle = (begin + end) / 2.0
        if self.task.routing is None and self.task.elastic is None:
            found: FloatArray = np.min([decoded(each, middle) + prefilled(each) for each in every], axis=0)
            return found
        ends = [np.min([decoded(each, at) for each in every], axis=0) for at in (begin, end)]
        least: FloatArray = (ends[0] + ends[1]) / 2.0 + np.min([prefilled(each) for each in every], axis=0)
        return least

    def _decoded(
        self, draws: Draws, costs: DecodeCosts, gpu: float, beta: FloatArray, contexts: FloatArray
    ) -> FloatArray:
        """Give the least cost of the tokens of each trajectory, at such a context on average."""
        tokens, replica = draws.responses, gpu * costs.tp
        fixed, each = replica * costs.fixed_s, beta * costs.per_sequence_s
        if costs.tp in self.by_room:
            bracket = fixed * draws.finals / costs.kv_tokens + each
        else:
            best = np.clip(np.sqrt(fixed / np.maximum(each, 1e-300)), 1.0, costs.max_sequences)
            bracket = fixed / best + each * best
        found: FloatArray = tokens * (
            bracket + replica * costs.per_sequence_s + beta * costs.fixed_s
        ) + tokens * contexts * costs.per_token_s * (replica + beta)
        return found

    # ------------------------------------------------------------ training

    def train_work(self, draws: Draws) -> FloatArray:
        """Give the seconds of each sequence on one training replica that is no straggler."""
        train = self.task.costs.train
        if train is None:
            return np.zeros(len(draws.prompts))
        batches = np.minimum(draws.finals / train.micro_batch_tokens, 1.0)
        found: FloatArray = (
            train.fixed_s * batches + train.per_token_s * draws.finals + train.per_square_s * draws.finals**2
        )
        return found

    def _trained(self, draws: Draws, prices: Prices) -> float:
        train = self.task.costs.train
        assert train is not None
        count = np.arange(1, len(draws.slower) + 1)
        seconds = float(self.train_work(draws).sum()) / np.cumsum(1.0 / draws.slower)
        seconds = seconds + np.where(count > 1, train.all_reduce_s, 0.0)
        return float(((prices.gpu * train.gpus * count + prices.train) * seconds).min())

    def train_price(self, draws: Draws, prices: Prices) -> float:
        """Give the least cost of a second of training work at this step, whatever it is."""
        train = self.task.costs.train
        if train is None:
            return 0.0
        count = np.arange(1, len(draws.slower) + 1)
        held = prices.gpu * train.gpus * count + prices.train
        return float((held / np.cumsum(1.0 / draws.slower)).min())

"""A proven bound on every policy in a world under a seed, whatever it knows and however it moves.

The figure is `weighted` of `figures.py`: Σ v over steps done, v = weight · fair-share seconds of the step ÷
seconds of the world. Let a run do n_t steps of each task t. At any prices λ, ν_t, μ_t ≥ 0 of a GPU-second, of
a second of the task's rollouts and of its training, these steps cost C_t(n_t) at least, while what they can
take is limited: GPUs that work give G·T GPU-seconds less failures, and each line of a task has the T_t
seconds that it is there. So

    Σ v ≤ λ·GPU-seconds + Σ_t [(ν_t + μ_t)·T_t + max over n of (V_t(n) − C_t(n))].

This holds at all prices; they are searched for on a few steps, and the bound is then counted on every step
of the seed. Sync tasks have one line, μ = ν. Async tasks whose rollouts are a stream train on trajectories
in their own order: their n steps train n·S of the first (n + 1 + η)·S, and the (1 + η)·S costliest are
taken off. What is left out could only take more: moves, GPUs that are held and idle, waits for CPU workers.
Where more than a million trajectories would have to be drawn, later steps are counted by the mean and eight
standard deviations of those before: the bound then holds but for such luck.

Every step costs at least this, in any form that the engine simulates:

- *Decoding.* A decode step of B trajectories with contexts that sum to C takes τ = F + p·B + q·C seconds of
  tp GPUs, and as much of each of the B trajectories. At λ a GPU-second and β a second of a trajectory it
  costs (λ·tp + Σβ)·τ ≥ [λ·tp·F + Σβ·p·B] + λ·tp·p·B + Σβ·F + q·Σ c·(λ·tp + β), with the context c of each.
  The bracket is at least the sum, over those that run, of the least over b in 1 … slots of λ·tp·F/b + β·p·b;
  and, since they hold Σ final ≤ room, at least that of λ·tp·F·final/room + β·p. Either way the cost is a sum
  over trajectories, and each has its cheapest tp: no dealing and no mix of replicas does better. Where
  trajectories may move (`elastic`), each token has its cheapest tp: the least of lines in the context is
  concave, so that its mean over a trajectory is at least that of its two ends. What tools return is counted
  in what must be held, and else left out.
- *The line of the rollouts.* Where a step is generated before the next begins it takes as long as each of its
  trajectories, and so as any mean of them: a second of the line at ν is β = ν·w of each, with weights w that
  sum to 1; long ones get more, as w ~ tokens to the power `tail`. In a stream no more than M run at once, so
  their seconds sum to M × the time of the line at most, and β = ν/M.
- *Training.* m replicas with the stragglers' factors f₁ … f_m of the step, as they are drawn, share the work
  W in no less than W ÷ Σ 1/f seconds, on all of their GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from libra_plan.models.lengths import FloatArray, IntArray
from libra_plan.planner.simulate.figures import References
from libra_plan.planner.simulate.work import DrawnWork, draw_failures, log_normal, random_stream
from libra_plan.planner.simulate.world import DecodeCosts, World, WorldTask

__all__ = ["upper_bound"]

_SAMPLED = 8
_CHUNK = 16
_MOST_STEPS = 1_000_000
_MOST_DRAWN = 1_000_000


@dataclass(frozen=True)
class _LinePrices:
    """What a GPU-second costs, and a second of a task's rollouts and of its training.

    `tail`: how much more of the rollouts' price long trajectories get than short ones.
    """

    gpu: float
    rollout: float
    train: float
    tail: float = 0.0


_UNIT = (_LinePrices(1.0, 0.0, 0.0), _LinePrices(0.0, 1.0, 0.0, 8.0), _LinePrices(0.0, 0.0, 1.0))


def upper_bound(world: World, seed: int, references: References) -> float:
    """Return weighted fair shares per second that no run of this world under this seed exceeds."""
    seconds = world.hours * 3600.0
    lost = sum(min(at + repair, seconds) - at for _, at, repair in draw_failures(world, seed) if at < seconds)
    able = world.site.gpus * seconds - lost
    tasks = [_Floor(world, task, seed, able, references) for task in world.tasks]
    present = [task for task in tasks if task.seconds > 0.0]
    start = sum(task.spec.weight for task in present) / able
    price = _least(lambda gpu: gpu * able + sum(task.guess(gpu)[0] for task in present), start, 0.1)
    prices = [task.guess(price)[1] for task in present]
    paid = price * able + sum(task.paid(own) for task, own in zip(present, prices, strict=True))
    counts = [_Count(task, own) for task, own in zip(present, prices, strict=True)]
    # all costs grow in proportion to the prices: the best proportion needs no step counted again
    factor = _least(lambda f: f * paid + sum(count.most(f) for count in counts), 1.0, 2e-3)
    return factor * paid + sum(count.most(factor) for count in counts)


def _least(total: Callable[[float], float], start: float, within: float) -> float:
    """Return the price with the least total, not too far from a start."""
    from scipy.optimize import minimize_scalar

    low, high = math.log(start) - 6.0, math.log(start) + 4.0
    found = minimize_scalar(
        lambda x: total(math.exp(x)), bounds=(low, high), method="bounded", options={"xatol": within}
    )
    return math.exp(float(found.x))


@dataclass(frozen=True)
class _Draws:
    """The trajectories of some steps as drawn, a row a step: tokens, seconds of tool calls, stragglers.

    `read` are the tokens that tools return; `slower` has the factor of each training replica.
    """

    prompts: FloatArray
    responses: FloatArray
    calls_s: FloatArray
    read: FloatArray
    slower: FloatArray

    @cached_property
    def finals(self) -> FloatArray:
        """Return the tokens of whole sequences."""
        return self.prompts + self.responses + self.read


class _Floor:
    """The least that a task's steps cost under one seed, and what the task can take.

    `by_room` lists the tp whose decode steps are counted by KV cache, and not by slots: either is a bound,
    but trajectories that run together must be counted alike. `sample` are a few steps, each of which stands
    for `each` steps beside it.
    """

    def __init__(self, world: World, spec: WorldTask, seed: int, able: float, references: References) -> None:
        self.spec, self.seed, self.references = spec, seed, references
        self.whole_s = world.hours * 3600.0
        self.seconds = max(0.0, self.whole_s - spec.arrives_s)
        self.limits = (able, self.seconds, self.seconds)
        self.most_gpus = min(world.site.gpus, spec.max_gpus or world.site.gpus)
        self.overlaps = spec.coupling == "async"
        self.streams = self.overlaps and spec.rollouts == "stream"
        self.work = DrawnWork(spec, seed)
        first = self.draws([0])
        usual = float((first.responses * first.finals).sum()) / float(first.responses.sum())
        by_room = (each.tp for each in spec.costs.decode if usual * each.max_sequences > each.kv_tokens)
        self.by_room = frozenset(by_room)
        self.sample, self.values, self.each = self._sampled()

    def value(self, step: int) -> float:
        """Return the value of a step."""
        mean = self.spec.responses.mean_at(step)
        return self.spec.weight * self.references.step_s(self.spec.id, mean) / self.whole_s

    def draws(self, steps: Iterable[int]) -> _Draws:
        """Draw steps as the engine does, without making trajectories of them."""
        columns = zip(*map(self._drawn, steps), strict=True)
        return _Draws(*(np.array(column, dtype=np.float64) for column in columns))

    def _drawn(self, step: int) -> tuple[FloatArray | IntArray, ...]:
        drawn, train = self.work.lengths(step), self.spec.costs.train
        most = 1 if train is None else max(1, self.most_gpus // train.gpus)
        rng = random_stream(self.seed, "train", self.spec.id, step)
        slower = log_normal(rng, 0.0, 0.0 if train is None else train.straggler_sigma, most)
        calls = np.zeros(len(drawn.prompts)) if drawn.calls_s is None else drawn.calls_s.sum(axis=1)
        return drawn.prompts, drawn.responses, calls, drawn.read, slower

    def _sampled(self) -> tuple[_Draws, FloatArray, float]:
        """Sample from the steps that could be done at most."""
        most = 64
        while True:
            at = np.linspace(0, most - 1, _SAMPLED).astype(int).tolist()
            draws, each = self.draws(at), most / _SAMPLED
            used = (
                float(self.of_steps(draws, unit).sum()) / limit
                for unit, limit in zip(_UNIT, self.limits, strict=True)
                if limit
            )
            if max(used, default=math.inf) * each >= 1.0 or most >= (self.spec.steps or _MOST_STEPS):
                return draws, np.array([self.value(step) for step in at]), each
            most = min(2 * most, self.spec.steps or _MOST_STEPS)

    # ------------------------------------------------------------ prices

    def guess(self, gpu: float) -> tuple[float, _LinePrices]:
        """Find prices of the task's time at a price of GPUs by the sample; return them with their bound."""
        from scipy.optimize import minimize

        scale = float(self.values.sum() * self.each) / max(self.seconds, 1.0)

        def prices(x: FloatArray) -> _LinePrices:
            line = scale * math.exp(min(x[0], 20.0))
            other = scale * math.exp(min(x[1], 20.0)) if self.overlaps else line
            return _LinePrices(gpu, line, other, min(max(x[2], 0.0), 30.0))

        def about(x: FloatArray) -> float:
            gains = np.cumsum((self.values - self.of_steps(self.sample, prices(x))) * self.each)
            return max(0.0, float(gains.max())) + self.paid(prices(x))

        found = minimize(
            about,
            [-1.0, -1.0, 3.0],
            method="Nelder-Mead",
            options={"maxfev": 50, "xatol": 0.02, "fatol": 1e-4 * scale},
        )
        return float(found.fun), prices(found.x)

    def paid(self, prices: _LinePrices) -> float:
        """Return the value of the task's time at these prices."""
        return (prices.rollout + prices.train if self.overlaps else prices.train) * self.seconds

    # ------------------------------------------------------------ costs of steps

    def of_steps(self, draws: _Draws, prices: _LinePrices) -> FloatArray:
        """Return the least costs of steps that are each generated, scored and trained on for themselves."""
        costs, tokens = self.spec.costs, draws.finals.sum(axis=1)
        total = np.full(len(tokens), self.once(prices))
        for scoring in costs.scoring:
            line = 0.0 if self.overlaps else prices.train / max(1, self.most_gpus // scoring.gpus)
            total += (prices.gpu * scoring.gpus + line) * scoring.per_token_s * tokens
        if costs.train is not None:
            count = np.arange(1, draws.slower.shape[1] + 1)
            seconds = self.train_work(draws).sum(axis=1)[:, None] / np.cumsum(1.0 / draws.slower, axis=1)
            seconds = seconds + np.where(count > 1, costs.train.all_reduce_s, 0.0)
            total += ((prices.gpu * costs.train.gpus * count + prices.train) * seconds).min(axis=1)
        return total + self.of_trajectories(draws, prices).sum(axis=1) if costs.decode else total

    def once(self, prices: _LinePrices) -> float:
        """Return the cost of each step besides its stages: the hand-over of weights, or waking up."""
        costs, ways = self.spec.costs, []
        if "separate" in self.spec.arrangements:
            ways.append(costs.sync_s if costs.decode and costs.train else 0.0)
        if "colocated" in self.spec.arrangements:
            ways.append(costs.wake_s * len(self.spec.roles) if len(self.spec.roles) > 1 else 0.0)
        return prices.train * min(ways, default=0.0)

    def of_trajectories(self, draws: _Draws, prices: _LinePrices) -> FloatArray:
        """Return the least cost of generating each trajectory, at its cheapest tp."""
        if self.streams:
            in_flight = self.spec.samples * (1 + self.spec.staleness)
            beta = np.full(draws.responses.shape, prices.rollout / in_flight)
        else:
            own = (draws.responses / draws.responses.max(axis=1, keepdims=True)) ** prices.tail
            beta = prices.rollout * own / own.sum(axis=1, keepdims=True)
        every, begin, end = self.spec.costs.decode, draws.prompts, draws.prompts + draws.responses

        def decoded(contexts: FloatArray) -> list[FloatArray]:
            return [self._decoded(draws, each, prices.gpu, beta, contexts) for each in every]

        prefilled = [begin * each.prefill_s_per_token * (prices.gpu * each.tp + beta) for each in every]
        if self.spec.elastic is None:
            least = np.min(np.add(decoded((begin + end) / 2.0), prefilled), axis=0)
        else:
            ends = np.min(decoded(begin), axis=0) + np.min(decoded(end), axis=0)
            least = ends / 2.0 + np.min(prefilled, axis=0)
        found: FloatArray = least + draws.calls_s * beta
        return found

    def _decoded(
        self, draws: _Draws, costs: DecodeCosts, gpu: float, beta: FloatArray, contexts: FloatArray
    ) -> FloatArray:
        """Return the least cost of the tokens of each trajectory, at such a context on average."""
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

    def train_work(self, draws: _Draws) -> FloatArray:
        """Return the seconds of each sequence on one training replica that is no straggler."""
        train, tokens = self.spec.costs.train, draws.finals
        if train is None:
            return np.zeros(tokens.shape)
        batches = np.minimum(tokens / train.micro_batch_tokens, 1.0)
        found: FloatArray = (
            train.fixed_s * batches + train.per_token_s * tokens + train.per_square_s * tokens**2
        )
        return found

    def train_prices(self, draws: _Draws, prices: _LinePrices) -> FloatArray:
        """Return the least cost of a second of training work at each step, whatever it is."""
        train, replicas = self.spec.costs.train, draws.slower.shape[1]
        if train is None:
            return np.zeros(len(draws.slower))
        held = prices.gpu * train.gpus * np.arange(1, replicas + 1) + prices.train
        least: FloatArray = (held / np.cumsum(1.0 / draws.slower, axis=1)).min(axis=1)
        return least


class _Count:
    """The value and the least cost of the first n steps of a task, for every n that can be done.

    Steps are counted in stretches that grow. Those of a stream are counted by trajectory, since n steps
    train n·S of the trajectories drawn so far.
    """

    def __init__(self, task: _Floor, prices: _LinePrices) -> None:
        self.task, self.every = task, (prices, *_UNIT)
        self.values, self.counted, self.left = [0.0], 0, 0.0
        self.costs = [np.zeros(0) for _ in self.every]
        self.generated = [np.zeros((0, task.spec.samples)) for _ in self.every]
        self.trained = np.zeros((0, task.spec.samples))
        self.brought, self.spent = np.zeros(1), np.zeros(1)
        while self._more():
            pass

    def _more(self) -> bool:
        """Count some steps more; False when no more could be done."""
        task, begun = self.task, len(self.values) - 1
        stretch = range(begun, begun + max(_CHUNK, begun // 4))
        for step in stretch:
            self.values.append(self.values[-1] + task.value(step))
        self._add(task.draws(stretch))
        sums = self._streamed() if task.streams else [np.cumsum(own) for own in self.costs]
        most = task.spec.steps or _MOST_STEPS
        steps = np.arange(self.counted + 1, len(sums[0]) + 1)
        can = steps <= most
        for used, limit in zip(sums[1:], task.limits, strict=True):
            can &= used[self.counted :] <= limit
        steps = steps if can.all() else steps[: int(np.argmin(can))]
        self.brought = np.append(self.brought, np.array(self.values)[steps])
        self.spent = np.append(self.spent, sums[0][steps - 1])
        self.counted = len(sums[0])
        if can.all() and len(self.values) * task.spec.samples > _MOST_DRAWN:
            share = max(float(own[-1]) / limit for own, limit in zip(sums[1:], task.limits, strict=True))
            self.left = 1.05 * min(self.counted / share, float(most)) - self.counted
            return False
        return bool(can.all())

    def _add(self, draws: _Draws) -> None:
        """Count what steps cost at each of the prices."""
        task = self.task
        scoring = sum(each.per_token_s * each.gpus for each in task.spec.costs.scoring)
        if task.streams:
            self.trained = np.concatenate((self.trained, task.train_work(draws)))
        for at, prices in enumerate(self.every):
            own = task.train_prices(draws, prices) if task.streams else task.of_steps(draws, prices)
            self.costs[at] = np.append(self.costs[at], own)
            if task.streams:
                made = task.of_trajectories(draws, prices) + prices.gpu * scoring * draws.finals
                self.generated[at] = np.concatenate((self.generated[at], made))

    def _streamed(self) -> list[FloatArray]:
        """Return the least costs, the costliest trajectories that may be left over taken off.

        Of the work of training no step has more than the S longest sequences; so the least that it costs
        is that of the steps at which it is cheapest, filled with as much.
        """
        samples, ahead = self.task.spec.samples, 1 + self.task.spec.staleness
        trained = self.trained
        least = _less_top(trained, ahead * samples)[ahead:]
        if not len(least):
            return [np.zeros(0) for _ in self.every]
        fullest = _top(trained, samples)
        filled = max(1, int(least[min(self.counted, len(least) - 1)] / fullest)) if fullest else 1
        found = []
        for at, prices in enumerate(self.every):
            cheapest = float(np.sort(self.costs[at])[:filled].mean())
            own = self.generated[at] + cheapest * trained
            once = self.task.once(prices) * np.arange(1, len(least) + 1)
            found.append(_less_top(own, ahead * samples)[ahead:] + once)
        return found

    def most(self, factor: float) -> float:
        """Return the largest value less cost over numbers of steps, at prices multiplied by a factor."""
        gains = self.brought - factor * self.spent
        best = float(gains.max())
        if self.left <= 0.0:
            return best
        each = np.diff(gains)[len(gains) // 2 :]
        lucky = 8.0 * float(each.std()) * (math.sqrt(self.left) + self.left / math.sqrt(len(each)))
        return max(best, float(gains[-1]) + max(0.0, float(each.mean()) * self.left + lucky))


def _top(costs: FloatArray, count: int) -> float:
    flat = costs.ravel()
    return float(np.partition(flat, max(0, len(flat) - count))[-count:].sum())


def _less_top(costs: FloatArray, count: int) -> FloatArray:
    """Return the sums of the first steps' costs without the largest of all."""
    found: FloatArray = np.maximum(np.cumsum(costs.sum(axis=1)) - _top(costs, count), 0.0)
    return found

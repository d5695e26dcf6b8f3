"""What no policy can exceed in a world under a seed: proven, whatever it knows and however it moves.

The figure is `weighted` of `report.py`: Σ v over steps done, v = weight · fair-share seconds of the step ÷
seconds of the world. Let a run do n_t steps of each task t. `bound_work.py` shows that at any prices
λ, ν_t, μ_t ≥ 0 its steps cost C_t(n_t) at least, while what they can take is limited: GPUs that work give G·T
GPU-seconds less failures, and each line of a task has the T_t seconds that it is there. So

    Σ v ≤ λ·GPU-seconds + Σ_t [(ν_t + μ_t)·T_t + max over n of (V_t(n) − C_t(n))].

This holds at all prices; they are searched for on a few steps, and the bound is then counted on every step
of the seed. Sync tasks have one line, μ = ν. Async tasks whose rollouts are a stream train on trajectories
in their own order: their n steps train n·S of the first (n + 1 + η)·S, and the (1 + η)·S costliest are
taken off. What is left out could only take more: moves, GPUs that are held and idle, waits for CPU workers.
Where more than a million trajectories would have to be drawn, later steps are counted by the mean and eight
standard deviations of those before: the bound then holds but for such luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from libra_plan.models.lengths import FloatArray
from libra_plan.planner.simulate.bound_work import Draws, Floor, Prices
from libra_plan.planner.simulate.failing import failures_of
from libra_plan.planner.simulate.report import References
from libra_plan.planner.simulate.work import Work
from libra_plan.planner.simulate.world import World, WorldTask

__all__ = ["upper_bound"]

_SAMPLED = 8
_CHUNK = 16
_MOST_STEPS = 1_000_000
_MOST_DRAWN = 1_000_000
_UNIT = (Prices(1.0, 0.0, 0.0), Prices(0.0, 1.0, 0.0, 8.0), Prices(0.0, 0.0, 1.0))


def upper_bound(world: World, seed: int, references: References) -> float:
    """Give weighted fair shares per second that no run of this world under this seed exceeds."""
    seconds = world.hours * 3600.0
    lost = sum(min(at + repair, seconds) - at for _, at, repair in failures_of(world, seed) if at < seconds)
    able = world.site.gpus * seconds - lost
    tasks = [_Task.of(world, task, seed, able, references) for task in world.tasks]
    present = [task for task in tasks if task.seconds > 0.0]
    start = sum(task.spec.weight for task in present) / able
    price = _least(lambda gpu: gpu * able + sum(task.guess(gpu)[0] for task in present), start, 0.1)
    prices = [task.guess(price)[1] for task in present]
    paid = price * able + sum(task.paid(own) for task, own in zip(present, prices, strict=True))
    counts = [task.counted(own) for task, own in zip(present, prices, strict=True)]
    # all costs grow in proportion to the prices: the best proportion needs no step counted again
    factor = _least(lambda f: f * paid + sum(count.most(f) for count in counts), 1.0, 2e-3)
    return factor * paid + sum(count.most(factor) for count in counts)


def _least(total: Callable[[float], float], start: float, within: float) -> float:
    """Find the price with the least total, not too far from a start."""
    from scipy.optimize import minimize_scalar

    low, high = math.log(start) - 6.0, math.log(start) + 4.0
    found = minimize_scalar(
        lambda x: total(math.exp(x)), bounds=(low, high), method="bounded", options={"xatol": within}
    )
    return math.exp(float(found.x))


@dataclass(frozen=True)
class _Sample:
    """A few steps that stand for `each` steps beside them."""

    draws: tuple[Draws, ...]
    values: FloatArray
    each: float


@dataclass(frozen=True)
class _Task:
    """One task under one seed, and what it can take: GPU-seconds of the cluster and seconds of its own."""

    spec: WorldTask
    floor: Floor
    work: Work
    able: float
    seconds: float
    value: Callable[[int], float]
    sample: _Sample

    @staticmethod
    def of(world: World, spec: WorldTask, seed: int, able: float, references: References) -> _Task:
        """Set a task up, with a sample of the steps that it could do."""
        whole = world.hours * 3600.0

        def value(step: int) -> float:
            return spec.weight * references.step_s(spec.id, spec.responses.mean_at(step)) / whole

        floor, work = Floor(spec, seed, world.site.gpus), Work(spec, seed)
        floor = floor.counted(floor.draws(work, 0))
        sample = _Sample((), np.zeros(0), 1.0)
        made = _Task(spec, floor, work, able, max(0.0, whole - spec.arrives_s), value, sample)
        return replace(made, sample=made._sampled())

    @property
    def limits(self) -> tuple[float, float, float]:
        """Give the GPU-seconds, the seconds of rollouts and those of training that there are."""
        return self.able, self.seconds, self.seconds

    def _sampled(self) -> _Sample:
        """Sample the steps up to about as many as could be done."""
        most = 64
        while True:
            at = np.linspace(0, most - 1, _SAMPLED).astype(int)
            draws = tuple(self.floor.draws(self.work, int(k)) for k in at)
            used = [
                sum(self.floor.of_step(d, unit) for d in draws) / limit
                for unit, limit in zip(_UNIT, self.limits, strict=True)
                if limit
            ]
            each = most / _SAMPLED
            share = max(used, default=math.inf) * each
            if share >= 1.0 or most >= (self.spec.steps or _MOST_STEPS):
                break
            most = min(2 * most, self.spec.steps or _MOST_STEPS)
        return _Sample(draws, np.array([self.value(int(k)) for k in at]), each)

    # ------------------------------------------------------------ prices

    def guess(self, gpu: float) -> tuple[float, Prices]:
        """Find prices of the task's time at a price of GPUs, by the sample; and about what they come to."""
        from scipy.optimize import minimize

        scale = float(self.sample.values.sum() * self.sample.each) / max(self.seconds, 1.0)

        def prices(x: FloatArray) -> Prices:
            line = scale * math.exp(min(x[0], 20.0))
            other = scale * math.exp(min(x[1], 20.0)) if self.floor.overlaps else line
            return Prices(gpu, line, other, min(max(x[2], 0.0), 30.0))

        found = minimize(  # type: ignore[call-overload]  # the stubs know no options of one method
            lambda x: self._about(prices(x)),
            [-1.0, -1.0, 3.0],
            method="Nelder-Mead",
            options={"maxfev": 50, "xatol": 0.02, "fatol": 1e-4 * scale},
        )
        return float(found.fun), prices(found.x)

    def _about(self, prices: Prices) -> float:
        own = self.floor.of_steps(self.sample.draws, prices)
        gains = np.cumsum((self.sample.values - own) * self.sample.each)
        return max(0.0, float(gains.max())) + self.paid(prices)

    def paid(self, prices: Prices) -> float:
        """Give what its time is worth at these prices."""
        lines = prices.rollout + prices.train if self.floor.overlaps else prices.train
        return lines * self.seconds

    # ------------------------------------------------------------ the bound

    def counted(self, prices: Prices) -> _Count:
        """Count every step that could be done at these prices."""
        count = _Streamed(self, prices) if self.floor.streams else _Count(self, prices)
        while count.more():
            pass
        return count


class _Count:
    """Counts the steps of a serial task in stretches that grow, with what they bring and cost."""

    def __init__(self, task: _Task, prices: Prices) -> None:
        self.task, self.every = task, (prices, *_UNIT)
        self.values, self.counted, self.left = [0.0], 0, 0.0
        self.costs: list[list[float]] = [[] for _ in self.every]
        self.brought, self.spent = np.zeros(1), np.zeros(1)

    def more(self) -> bool:
        """Count some steps more; False when no more could be done."""
        begun = len(self.values) - 1
        for step in range(begun, begun + max(_CHUNK, begun // 4)):
            draws = self.task.floor.draws(self.task.work, step)
            self.values.append(self.values[-1] + self.task.value(step))
            self.draw(step, draws)
        sums, most = self.sums(), self.task.spec.steps or _MOST_STEPS
        steps = np.arange(self.counted + 1, len(sums[0]) + 1)
        can = steps <= most
        for own, limit in zip(sums[1:], self.task.limits, strict=True):
            can &= own[self.counted :] <= limit
        steps = steps if can.all() else steps[: int(np.argmin(can))]
        self.brought = np.append(self.brought, np.array(self.values)[steps])
        self.spent = np.append(self.spent, sums[0][steps - 1])
        self.counted = len(sums[0])
        if can.all() and len(self.values) * self.task.spec.samples > _MOST_DRAWN:
            used = max(float(own[-1]) / limit for own, limit in zip(sums[1:], self.task.limits, strict=True))
            self.left = 1.05 * min(self.counted / used, float(most)) - self.counted
            return False
        return bool(can.all())

    def most(self, factor: float) -> float:
        """Give the most that steps bring more than they cost, at prices greater by a factor."""
        gains = self.brought - factor * self.spent
        best = float(gains.max())
        if self.left <= 0.0:
            return best
        each = np.diff(gains)[len(gains) // 2 :]
        lucky = 8.0 * float(each.std()) * (math.sqrt(self.left) + self.left / math.sqrt(len(each)))
        return max(best, float(gains[-1]) + max(0.0, float(each.mean()) * self.left + lucky))

    def draw(self, step: int, draws: Draws) -> None:
        """Count what a step costs."""
        for own, prices in zip(self.costs, self.every, strict=True):
            own.append(self.task.floor.of_step(draws, prices))

    def sums(self) -> list[FloatArray]:
        """Give, at every price, the least cost of 1, 2, … steps."""
        return [np.cumsum(own) for own in self.costs]


class _Streamed(_Count):
    """Counts the steps of an async task: n of them train n·S of the trajectories drawn so far."""

    def __init__(self, task: _Task, prices: Prices) -> None:
        super().__init__(task, prices)
        self.generated: list[list[FloatArray]] = [[] for _ in self.every]
        self.trained: list[FloatArray] = []

    def draw(self, step: int, draws: Draws) -> None:
        """Keep what each trajectory costs; `costs` has the price of a second of training at this step."""
        floor, spec = self.task.floor, self.task.spec
        scoring = sum(each.per_token_s * each.gpus for each in spec.costs.scoring)
        self.trained.append(floor.train_work(draws))
        for at, prices in enumerate(self.every):
            own = floor.of_trajectories(draws, prices) + prices.gpu * scoring * draws.finals
            self.generated[at].append(own)
            self.costs[at].append(floor.train_price(draws, prices))

    def sums(self) -> list[FloatArray]:
        """Give the least costs, the costliest trajectories that may be left over taken off.

        Of the work of training no step has more than the S longest sequences; so the least that it costs
        is that of the steps at which it is cheapest, filled with as much.
        """
        samples, ahead = self.task.spec.samples, 1 + self.task.spec.staleness
        trained = np.array(self.trained)
        least = _less_top(trained, ahead * samples)[ahead:]
        if not len(least):
            return [np.zeros(0) for _ in self.every]
        fullest = _top(trained, samples)
        filled = max(1, int(least[min(self.counted, len(least) - 1)] / fullest)) if fullest else 1
        found = []
        for at, prices in enumerate(self.every):
            cheapest = float(np.sort(self.costs[at])[:filled].mean())
            own = np.array(self.generated[at]) + cheapest * trained
            once = self.task.floor.once(prices) * np.arange(1, len(least) + 1)
            found.append(_less_top(own, ahead * samples)[ahead:] + once)
        return found


def _top(costs: FloatArray, count: int) -> float:
    flat = costs.ravel()
    return float(np.partition(flat, max(0, len(flat) - count))[-count:].sum())


def _less_top(costs: FloatArray, count: int) -> FloatArray:
    """Give the sums of the first steps' costs without the largest of all."""
    found: FloatArray = np.maximum(np.cumsum(costs.sum(axis=1)) - _top(costs, count), 0.0)
    return found

"""Compute figures from records: work per fair share, completion, idleness, moves; paired intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from libra_plan.models.quantities import Origin, exactly
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.simulate.noisy_cost_model import NoisyCosts
from libra_plan.planner.simulate.policy import PARAMS, part_of, shares
from libra_plan.planner.simulate.record import RunRecord
from libra_plan.planner.simulate.world import World, world_cluster

__all__ = [
    "FIGURES",
    "FigureSummary",
    "Figures",
    "PairedRatio",
    "References",
    "SeedMean",
    "figures_of",
    "paired",
    "summaries",
]

_BUCKET = 0.05


class Figures(msgspec.Struct, frozen=True):
    """The figures of one run. Shares are of 1; None: nothing of the kind happened.

    `weighted`: Σ weight × fair shares' worth of work done, per second; `of_bound`: its share of what is
    proven to be out of every policy's reach (`bound.py`). `task_rates`: the work of each task that came, in
    its fair shares; `fairness`: the least. `idle`: GPU-time that no role used; `bubbles`: of what tasks
    held. `jct`: from arrival to the last step, of the tasks that did all their steps.
    """

    world: str
    policy: str
    seed: int
    hours: float
    weighted: float
    of_bound: float | None
    tokens_per_s: float
    samples_per_s: float
    task_rates: dict[str, float]
    fairness: float | None
    jct_mean_s: float | None
    jct_p99_s: float | None
    makespan_s: float | None
    idle: float
    bubbles: float
    moves_per_hour: float
    lost_gpu_hours: float
    decide_p50_s: float | None
    decide_p99_s: float | None


_NO_FIGURES = ("world", "policy", "seed", "hours", "task_rates")
FIGURES = tuple(name for name in Figures.__struct_fields__ if name not in _NO_FIGURES)
"""The figures that are summed up over seeds; the rates of tasks are, too."""


class References:
    """Seconds that a step takes a task alone on its weighted fair share, at the lengths of that step.

    Taken from the closed forms with true costs, so that all policies are held against the same.
    """

    def __init__(self, world: World) -> None:
        self.world, self._true = world, NoisyCosts(world)
        weights = {task.id: task.weight for task in world.tasks}
        self._gpus = shares(world_cluster(world), weights)
        self._kept: dict[tuple[str, int], float] = {}

    def step_s(self, task: str, mean_tokens: float) -> float:
        """Return the reference for a step with this mean length."""
        bucket = round(math.log(mean_tokens) / _BUCKET)
        if (task, bucket) not in self._kept:
            whole = world_cluster(self.world)
            mean = exactly(math.exp(bucket * _BUCKET), "tokens", Origin.MEASURED)
            problem = self._true.problem(
                part_of(whole, list(whole.gpus)[: self._gpus[task]]), {task: mean}, [task]
            )
            plan = solve_problem(problem, PARAMS).require_plan()
            self._kept[task, bucket] = plan.running[0].configuration.step_time_s.value
        return self._kept[task, bucket]


def figures_of(
    record: RunRecord, world: World, references: References, bound: float | None = None
) -> Figures:
    """Compute the figures of one run; `bound` holds for every policy under its seed."""
    seconds = record.hours * 3600.0
    done: dict[str, float] = {task.id: 0.0 for task in world.tasks}
    for step in record.steps:
        spec = world.task_of[step.task]
        # the expected lengths of the step, not the drawn ones: a long draw must not count as more work
        done[step.task] += references.step_s(step.task, spec.responses.mean_at(step.step))
    rates = {name: done[name] / _here_s(record, name, seconds) for name in done if name in record.arrived_s}
    weighted = sum(world.task_of[name].weight * value for name, value in done.items()) / seconds
    spans = [end - record.arrived_s[name] for name, end in record.finished_s.items()]
    everything = record.gpus * seconds
    busy, held = sum(record.busy_gpu_s.values()), sum(record.held_gpu_s.values())
    moves = sum(change.why != "start" for change in record.changes)
    return Figures(
        record.world,
        record.policy,
        record.seed,
        record.hours,
        weighted,
        weighted / bound if bound else None,
        sum(step.tokens for step in record.steps) / seconds,
        sum(step.samples for step in record.steps) / seconds,
        rates,
        min(rates.values(), default=None),
        float(np.mean(spans)) if spans else None,
        float(np.quantile(spans, 0.99)) if spans else None,
        max(record.finished_s.values()) if len(record.finished_s) == len(world.tasks) else None,
        1.0 - busy / everything,
        1.0 - busy / held if held else 0.0,
        moves / record.hours,
        sum(record.lost_gpu_s.values()) / 3600.0,
        float(np.median(record.decide_s)) if record.decide_s else None,
        float(np.quantile(record.decide_s, 0.99)) if record.decide_s else None,
    )


def _here_s(record: RunRecord, task: str, seconds: float) -> float:
    """Return the seconds a task was there, waiting counted."""
    return max(1.0, record.finished_s.get(task, seconds) - record.arrived_s[task])


class PairedRatio(msgspec.Struct, frozen=True):
    """A ratio of two policies over paired seeds: mean, and 95 % interval (None: one seed only)."""

    world: str
    policy: str
    over: str
    seeds: int
    mean: float
    low: float | None
    high: float | None


def paired(found: Sequence[Figures], policy: str, over: str) -> list[PairedRatio]:
    """Compare weighted throughput seed by seed: Student's interval of the mean of ln ratios, per world."""
    by: Mapping[tuple[str, str, int], float] = {
        (each.world, each.policy, each.seed): each.weighted for each in found
    }
    result = []
    for world in dict.fromkeys(each.world for each in found):
        seeds = sorted({seed for w, p, seed in by if w == world and p == policy and (w, over, seed) in by})
        logs = np.array([math.log(by[world, policy, s] / by[world, over, s]) for s in seeds])
        if not len(logs):
            continue
        spread = SeedMean.of(logs)
        low, high = (None if end is None else math.exp(end) for end in (spread.low, spread.high))
        result.append(PairedRatio(world, policy, over, len(logs), math.exp(spread.mean), low, high))
    return result


class SeedMean(msgspec.Struct, frozen=True):
    """A mean over seeds, with Student's 95 % interval (None: one seed only)."""

    seeds: int
    mean: float
    low: float | None
    high: float | None

    @staticmethod
    def of(values: Iterable[float]) -> SeedMean:
        """Compute the mean of one value per seed, and its interval."""
        from scipy.stats import t as student

        known = np.array(list(values), dtype=np.float64)
        mean, count = float(known.mean()), len(known)
        if count == 1:
            return SeedMean(1, mean, None, None)
        half = float(student.ppf(0.975, count - 1) * known.std(ddof=1) / math.sqrt(count))
        return SeedMean(count, mean, mean - half, mean + half)


class FigureSummary(msgspec.Struct, frozen=True):
    """A figure of a policy in a world, over the seeds in which there is one.

    `figure` is a field of `Figures`, or `task_rates.TASK`. `change` is the difference to the policy it is
    compared with, seed by seed; None: it is that policy, or no seed has both.
    """

    world: str
    policy: str
    figure: str
    over: str
    value: SeedMean
    change: SeedMean | None


def summaries(found: Sequence[Figures], over: str) -> list[FigureSummary]:
    """Sum up every figure of every world and policy, and compare it with that of another policy."""
    result = []
    for world, policy in dict.fromkeys((each.world, each.policy) for each in found):
        own = {e.seed: e for e in found if (e.world, e.policy) == (world, policy)}
        other = {e.seed: e for e in found if (e.world, e.policy) == (world, over)} if policy != over else {}
        tasks = dict.fromkeys(task for each in own.values() for task in each.task_rates)
        for figure in (*FIGURES, *(f"task_rates.{task}" for task in tasks)):
            values = {seed: v for seed, each in own.items() if (v := _value(each, figure)) is not None}
            if not values:
                continue
            before = {seed: _value(each, figure) for seed, each in other.items()}
            change = [v - b for seed, v in values.items() if (b := before.get(seed)) is not None]
            result.append(
                FigureSummary(
                    world,
                    policy,
                    figure,
                    over,
                    SeedMean.of(values.values()),
                    SeedMean.of(change) if change else None,
                )
            )
    return result


def _value(figures: Figures, figure: str) -> float | None:
    kind, _, task = figure.partition(".")
    value: float | None = figures.task_rates.get(task) if task else getattr(figures, kind)
    return value

"""From records to figures: work against fair shares, completion, idleness, moves; paired intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from libra_plan.models.quantities import Origin, exactly
from libra_plan.planner.simulate.believed import Believed, world_cluster
from libra_plan.planner.simulate.placing import PARAMS, part_of, shares
from libra_plan.planner.simulate.record import Record
from libra_plan.planner.simulate.world import World
from libra_plan.planner.solvers.solve import solve

__all__ = ["Figures", "Interval", "References", "figures_of", "paired"]

_BUCKET = 0.05


class Figures(msgspec.Struct, frozen=True):
    """What one run came to. Shares are of 1; None: nothing of the kind happened.

    `weighted`: Σ weight × fair shares' worth of work done, per second. `fairness`: the least of the tasks'
    rates, each in its fair share. `idle`: GPU-time that no role used; `bubbles`: of what tasks held.
    """

    world: str
    policy: str
    seed: int
    hours: float
    weighted: float
    tokens_per_s: float
    samples_per_s: float
    task_rates: dict[str, float]
    fairness: float
    jct_mean_s: float | None
    jct_p99_s: float | None
    makespan_s: float | None
    idle: float
    bubbles: float
    moves_per_hour: float
    lost_gpu_hours: float
    decide_p50_s: float
    decide_p99_s: float


class References:
    """Seconds that a step takes a task alone on its weighted fair share, at the lengths of that step.

    Taken from the closed forms with true costs, so that all policies are held against the same.
    """

    def __init__(self, world: World) -> None:
        self.world, self._true = world, Believed(world)
        weights = {task.id: task.weight for task in world.tasks}
        self._gpus = shares(world_cluster(world), weights)
        self._kept: dict[tuple[str, int], float] = {}

    def step_s(self, task: str, mean_tokens: float) -> float:
        """Give the reference for a step with this mean length."""
        bucket = round(math.log(mean_tokens) / _BUCKET)
        if (task, bucket) not in self._kept:
            whole = world_cluster(self.world)
            mean = exactly(math.exp(bucket * _BUCKET), "tokens", Origin.MEASURED)
            problem = self._true.problem(
                part_of(whole, list(whole.gpus)[: self._gpus[task]]), {task: mean}, [task]
            )
            plan = solve(problem, PARAMS).require_plan()
            self._kept[task, bucket] = plan.running[0].column.step_time_s.value
        return self._kept[task, bucket]


def figures_of(record: Record, world: World, references: References) -> Figures:
    """Add up one run."""
    seconds = record.hours * 3600.0
    done: dict[str, float] = {task.id: 0.0 for task in world.tasks}
    for step in record.steps:
        spec = world.task_of[step.task]
        # the law of the step, not the luck of its draw: a long draw must not count as more work
        done[step.task] += references.step_s(step.task, spec.responses.mean_at(step.step))
    rates = {name: value / _here_s(record, name, seconds) for name, value in done.items()}
    weighted = sum(world.task_of[name].weight * value for name, value in done.items()) / seconds
    spans = [end - record.arrived_s[name] for name, end in record.finished_s.items()]
    everything = record.gpus * seconds
    busy, held = sum(record.busy_gpu_s.values()), sum(record.held_gpu_s.values())
    moves = sum(change.why == "move" for change in record.changes)
    return Figures(
        record.world,
        record.policy,
        record.seed,
        record.hours,
        weighted,
        sum(step.tokens for step in record.steps) / seconds,
        sum(step.samples for step in record.steps) / seconds,
        rates,
        min(rates.values()),
        float(np.mean(spans)) if spans else None,
        float(np.quantile(spans, 0.99)) if spans else None,
        max(record.finished_s.values()) if len(record.finished_s) == len(world.tasks) else None,
        1.0 - busy / everything,
        1.0 - busy / held if held else 0.0,
        moves / record.hours,
        sum(record.lost_gpu_s.values()) / 3600.0,
        float(np.median(record.decide_s)),
        float(np.quantile(record.decide_s, 0.99)),
    )


def _here_s(record: Record, task: str, seconds: float) -> float:
    """Give the seconds a task was there, waiting counted."""
    begun = record.arrived_s.get(task)
    return 1.0 if begun is None else max(1.0, record.finished_s.get(task, seconds) - begun)


class Interval(msgspec.Struct, frozen=True):
    """A ratio of two policies over paired seeds: mean, and 95 % interval (None: one seed only)."""

    world: str
    policy: str
    over: str
    seeds: int
    mean: float
    low: float | None
    high: float | None


def paired(found: Sequence[Figures], policy: str, over: str) -> list[Interval]:
    """Compare weighted throughput seed by seed: Student's interval of the mean of ln ratios, per world."""
    from scipy.stats import t as student

    by: Mapping[tuple[str, str, int], float] = {
        (each.world, each.policy, each.seed): each.weighted for each in found
    }
    result = []
    for world in dict.fromkeys(each.world for each in found):
        seeds = sorted({seed for w, p, seed in by if w == world and p == policy and (w, over, seed) in by})
        logs = np.array([math.log(by[world, policy, s] / by[world, over, s]) for s in seeds])
        if not len(logs):
            continue
        mean, low, high = float(logs.mean()), None, None
        if len(logs) > 1:
            half = float(student.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))
            low, high = math.exp(mean - half), math.exp(mean + half)
        result.append(Interval(world, policy, over, len(logs), math.exp(mean), low, high))
    return result

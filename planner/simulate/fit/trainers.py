"""Fit the costs of training and scoring, and stragglers, from the seconds of their stages."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
import numpy as np

from libra_plan.models.lengths import FloatArray
from libra_plan.planner.simulate.fit.evidence import (
    LEAST_STEPS,
    FitFindings,
    StageSeen,
    TaskSeen,
    median_with_bounds,
    six_digits,
)
from libra_plan.planner.simulate.stage_times import replica_train_s, split_evenly
from libra_plan.planner.simulate.work import DrawnWork
from libra_plan.planner.simulate.world import Costs, Drift, Scoring, Training, WorldTask

__all__ = ["fit_scoring", "fit_training"]

_LEAST_SPREAD = 20
"""Steps below which a spread is a guess."""
_SINGLE = 1.5  # steps in a window from which it tells no spread of single steps
_DRAWS, _TRIES = 12, 50
_ROUNDS = 3
_MOST_SIGMA = 2.0


def fit_training(task: WorldTask, rows: list[StageSeen], source: str, found: FitFindings) -> Training | None:
    """Scale the base's training costs to the recorded stages, and take their spread for stragglers'."""
    base, key = task.costs.train, f"{task.id}.costs.train"
    if base is None:
        return None
    rows = [row for row in rows if row.placed is not None]
    sizes = {size for row in rows for size in row.placed or ()}
    if len(rows) < LEAST_STEPS or len(sizes) != 1:
        why = f"{len(rows)} training stages on known GPUs, {LEAST_STEPS} are the least (--placed tells GPUs)"
        found.keep(key, why if len(sizes) <= 1 else "replicas of several sizes were recorded: one at a time")
        return base
    gpus = sizes.pop()
    if gpus != base.gpus:
        said = f"replicas of {gpus} GPUs were recorded, the base's have {base.gpus}: taken as recorded"
        found.doubts.append(f"{key}: {said}")
    costs = msgspec.structs.replace(base, gpus=gpus)
    counts = dict.fromkeys(len(row.placed or ()) for row in rows)
    drawn = {count: _Drawn.of(task, costs, count) for count in counts}
    told = [row for row in rows if row.tokens is not None and row.steps < _SINGLE]
    sigma, factor = base.straggler_sigma, (1.0, 1.0, 1.0)
    for _ in range(_ROUNDS):  # stragglers do not slow the all-reduce, which is scaled with the rest
        if len(told) >= _LEAST_SPREAD:
            sigma = _sigma(costs, told, drawn, task, factor[0])
        factor = median_with_bounds([_ratio(costs, row, drawn, task, sigma) for row in rows])
    of = f"steps of {source}"
    how = "seconds of a training stage ÷ the base's for as many tokens; all its costs alike"
    found.add(f"{key}: × the base's", factor[0], len(rows), of, how, span=factor[1:])
    _tell_sigma(key, sigma, len(told), of, found)
    names = ("fixed_s", "per_token_s", "per_square_s", "all_reduce_s")
    scaled = {name: six_digits(getattr(costs, name) * factor[0]) for name in names}
    return msgspec.structs.replace(costs, **scaled, straggler_sigma=six_digits(sigma))


def _tell_sigma(key: str, sigma: float, steps: int, of: str, found: FitFindings) -> None:
    if steps < _LEAST_SPREAD:
        why = f"{steps} single steps with tokens were recorded, {_LEAST_SPREAD} are the least for a spread"
        found.keep(f"{key}.straggler_sigma", why)
        return
    part = 1.645 * sigma / math.sqrt(2.0 * steps)
    how = "spread of seconds per token beyond that of lengths: all of it is taken for stragglers'"
    found.add(f"{key}.straggler_sigma", sigma, steps, of, how, span=(max(0.0, sigma - part), sigma + part))


@dataclass(frozen=True)
class _Drawn:
    """Some drawn steps over the drift: ln mean responses, tokens, and seconds of every replica.

    Shapes (steps,), (steps,) and (steps, replicas); `luck` (steps, tries, replicas) are normal draws.
    """

    means: FloatArray
    tokens: FloatArray
    seconds: FloatArray
    luck: FloatArray

    @staticmethod
    def of(task: WorldTask, costs: Training, replicas: int) -> _Drawn:
        """Draw steps with the base's costs."""
        law, last = task.responses, task.responses.steps or 0
        alone = msgspec.structs.replace(task, costs=Costs(train=costs))
        means, tokens, seconds = [], [], []
        for number in range(_DRAWS):
            mean = law.mean_at(number * last / (_DRAWS - 1))
            flat = Drift(first_mean_tokens=mean, sigma=law.sigma, max_tokens=law.max_tokens)
            lengths = DrawnWork(msgspec.structs.replace(alone, responses=flat), number).step(0).lengths
            means.append(math.log(mean))
            tokens.append(float(lengths.sum()))
            seconds.append([replica_train_s(costs, own) for own in split_evenly(lengths, replicas)])
        luck = np.random.default_rng(0).normal(size=(_DRAWS, _TRIES, replicas))
        return _Drawn(np.array(means), np.array(tokens), np.array(seconds), luck)

    def rates(self, sigma: float) -> FloatArray:
        """Return ln(seconds of the slowest ÷ tokens), shape (steps, tries)."""
        slowest = (self.seconds[:, None, :] * np.exp(sigma * self.luck)).max(axis=2)
        found: FloatArray = np.log(slowest) - np.log(self.tokens)[:, None]
        return found

    def line(self, sigma: float) -> FloatArray:
        """Return slope and start of the median rate over ln mean."""
        middle = np.median(self.rates(sigma), axis=1)
        if self.means.max() < self.means.min() + 0.01:
            return np.array([0.0, float(middle.mean())])
        line: FloatArray = np.polyfit(self.means, middle, 1)
        return line

    def variance(self, sigma: float) -> float:
        """Return the variance of ln seconds per token about the line."""
        left = self.rates(sigma) - np.polyval(self.line(sigma), self.means)[:, None]
        return float(left.var())

    def seconds_of(self, mean_tokens: float, tokens: float | None, sigma: float) -> float:
        """Return the seconds of a step with this mean and these tokens (None: as drawn)."""
        at = math.log(mean_tokens)
        if tokens is None:
            order = np.argsort(self.means)
            tokens = float(np.interp(at, self.means[order], self.tokens[order]))
        return math.exp(float(np.polyval(self.line(sigma), at))) * tokens


def _joined_s(costs: Training, row: StageSeen) -> float:
    return costs.all_reduce_s if len(row.placed or ()) > 1 else 0.0


def _ratio(costs: Training, row: StageSeen, drawn: dict[int, _Drawn], task: WorldTask, sigma: float) -> float:
    """Return the recorded seconds ÷ the base's."""
    mean = task.responses.mean_at(row.step)
    own = drawn[len(row.placed or ())].seconds_of(mean, row.tokens, sigma)
    return row.seconds / (own + _joined_s(costs, row))


def _sigma(
    costs: Training, rows: list[StageSeen], drawn: dict[int, _Drawn], task: WorldTask, factor: float
) -> float:
    """Return the sigma with which drawn steps are as spread as the recorded ones, by bisection."""
    found = []
    for replicas, own in drawn.items():
        of = [row for row in rows if len(row.placed or ()) == replicas]
        if len(of) < LEAST_STEPS:
            continue
        logs = [
            math.log(max(row.seconds / factor - _joined_s(costs, row), 1e-9))
            - math.log(own.seconds_of(task.responses.mean_at(row.step), row.tokens, 0.0))
            for row in of
        ]
        seen, low, high = float(np.var(logs, ddof=1)), 0.0, _MOST_SIGMA
        for _ in range(30):
            middle = (low + high) / 2.0
            low, high = (middle, high) if own.variance(middle) < seen else (low, middle)
        found.append((low, len(of)))
    return float(np.average([each for each, _ in found], weights=[n for _, n in found])) if found else 0.0


def fit_scoring(
    task: WorldTask, seen: TaskSeen, names: dict[str, str], found: FitFindings
) -> tuple[Scoring, ...]:
    """Fit the seconds per token of scoring replicas; `names` maps recorded roles to the world's."""
    of_role = {own: recorded for recorded, own in names.items()}
    fitted = []
    for scoring in task.costs.scoring:
        key = f"{task.id}.costs.scoring[{scoring.id}]"
        rows = seen.stages.get(of_role.get(scoring.id, scoring.id), [])
        rates = [row.seconds * len(row.placed) / row.tokens for row in rows if row.placed and row.tokens]
        if not found.enough(key, len(rates), LEAST_STEPS, "stages with tokens on known GPUs"):
            fitted.append(scoring)
            continue
        value, low, high = median_with_bounds(rates)
        how = "seconds × replicas ÷ tokens of a stage"
        of = f"steps of {seen.source}"
        found.add(f"{key}.per_token_s", value, len(rates), of, how, unit="s", span=(low, high))
        gpus = next(row.placed[0] for row in rows if row.placed)
        fitted.append(msgspec.structs.replace(scoring, gpus=gpus, per_token_s=six_digits(value)))
    return tuple(fitted)

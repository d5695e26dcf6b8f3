"""The work of a task, drawn anew for every step: the same for all policies of one seed."""

from __future__ import annotations

import itertools
import math
import zlib
from dataclasses import dataclass, field

import numpy as np

from libra_plan.models.lengths import FloatArray, IntArray
from libra_plan.planner.simulate.replica import Trajectory
from libra_plan.planner.simulate.world import WorldTask
from libra_plan.profiles.schema_workload import LogNormal

__all__ = ["StepLengths", "StepWork", "Work", "stream"]


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Make the random stream of one thing: what is drawn for one never moves what is drawn for another."""
    keys = [zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names]
    return np.random.default_rng([seed, *keys])


@dataclass(frozen=True)
class StepWork:
    """The trajectories of a step in the order they are handed out; for tasks that only train, lengths."""

    step: int
    lengths: IntArray
    trajectories: tuple[Trajectory, ...]
    mean_response: float


@dataclass(frozen=True)
class StepLengths:
    """What is drawn for a step: tokens of prompts and responses, seconds of each one's tool calls by turn."""

    prompts: IntArray
    responses: IntArray
    calls_s: FloatArray | None


@dataclass
class Work:
    """Draw the steps of one task."""

    task: WorldTask
    seed: int
    _kept: dict[int, StepWork] = field(default_factory=dict)

    def step(self, number: int) -> StepWork:
        """Give the work of a step; the last few are kept."""
        if number not in self._kept:
            self._kept[number] = self._drawn(number)
            self._kept.pop(number - 16, None)
        return self._kept[number]

    def lengths(self, number: int) -> StepLengths:
        """Draw a step; its trajectories are made of it."""
        task, rng = self.task, stream(self.seed, "work", self.task.id, number)
        prompts = _cut(task.prompts, task.samples, rng)
        responses = _cut(task.responses.law(task.responses.mean_at(number)), task.samples, rng)
        return StepLengths(prompts, responses, self._calls(rng) if task.costs.decode else None)

    def _drawn(self, number: int) -> StepWork:
        task, drawn = self.task, self.lengths(number)
        made: tuple[Trajectory, ...] = ()
        if task.costs.decode:
            pairs = zip(drawn.prompts.tolist(), drawn.responses.tolist(), strict=True)
            calls = itertools.repeat((), task.samples) if drawn.calls_s is None else drawn.calls_s.tolist()
            made = tuple(
                Trajectory(number, i, p, r, task.turns, tuple(own))
                for i, ((p, r), own) in enumerate(zip(pairs, calls, strict=True))
            )
        mean = float(drawn.responses.mean())
        return StepWork(number, drawn.prompts + drawn.responses, made, mean)

    def _calls(self, rng: np.random.Generator) -> FloatArray | None:
        tools = self.task.tools
        if tools is None:
            return None
        shape = (self.task.samples, self.task.turns)
        location = math.log(tools.mean_s) - tools.sigma**2 / 2.0
        drawn: FloatArray = np.exp(rng.normal(location, tools.sigma, shape))
        return drawn


def _cut(law: LogNormal, count: int, rng: np.random.Generator) -> IntArray:
    """Draw from the law given that it does not pass the cut; what does is drawn again."""
    location = math.log(law.median_tokens)
    drawn = np.exp(rng.normal(location, law.sigma, count))
    while (over := drawn > law.max_tokens).any():
        drawn[over] = np.exp(rng.normal(location, law.sigma, int(over.sum())))
    return np.maximum(np.floor(drawn), 1.0).astype(np.int64)

"""The work of a task, drawn anew for every step: the same for all policies of one seed."""

from __future__ import annotations

import itertools
import math
import zlib
from dataclasses import dataclass, field

import numpy as np

from libra_plan.models.lengths import FloatArray, IntArray
from libra_plan.planner.simulate.outcomes import (
    Outcomes,
    correlated_lengths,
    read_tokens,
    turns_of,
    with_outcomes,
)
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
class Returned:
    """What tools return to each trajectory: tokens in all, and a state for each of its turns; its prompt."""

    read: IntArray
    turns: IntArray
    prompt_ids: IntArray
    states: list[tuple[str, ...]]

    def tell(self, trajectories: tuple[Trajectory, ...]) -> None:
        """Set it in the trajectories."""
        columns = zip(
            self.read.tolist(), self.turns.tolist(), self.prompt_ids.tolist(), self.states, strict=True
        )
        for each, (read, turns, prompt_id, states) in zip(trajectories, columns, strict=True):
            each.read, each.turns, each.prompt_id, each.states = read, turns, prompt_id, states
            each.calls_s = each.calls_s[:turns]


@dataclass(frozen=True)
class StepLengths:
    """What is drawn for a step: tokens of prompts and responses, seconds of each one's tool calls by turn.

    With `returned`, responses are what is generated, without what tools return; calls not made take 0 s.
    """

    prompts: IntArray
    responses: IntArray
    calls_s: FloatArray | None
    returned: Returned | None = None

    @property
    def after_prompt(self) -> IntArray:
        """Give what follows each prompt, tool output included, tokens."""
        return self.responses if self.returned is None else self.responses + self.returned.read


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
        if task.outcomes is not None:
            return self._with_outcomes(number, task.outcomes, prompts, rng)
        responses = _cut(task.responses.law(task.responses.mean_at(number)), task.samples, rng)
        return StepLengths(prompts, responses, self._calls(rng, task.turns) if task.costs.decode else None)

    def _with_outcomes(
        self, number: int, outcomes: Outcomes, prompts: IntArray, rng: np.random.Generator
    ) -> StepLengths:
        task = self.task
        law = task.responses.law(task.responses.mean_at(number))
        ids = outcomes.prompt_of(number, task.samples)
        common = stream(self.seed, "prompts", task.id).normal(size=outcomes.prompts)[ids]
        responses = correlated_lengths(law, common, outcomes.prompt_share, rng)
        turns = turns_of(outcomes, responses, task.turns)
        calls = self._calls(rng, int(turns.max()))
        if calls is not None:
            calls[np.arange(calls.shape[1]) >= turns[:, None]] = 0.0
        states = with_outcomes(outcomes, responses, turns, rng)
        read = read_tokens(responses)
        return StepLengths(prompts, responses - read, calls, Returned(read, turns, ids, states))

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
            if drawn.returned is not None:
                drawn.returned.tell(made)
        mean = float(drawn.after_prompt.mean())
        return StepWork(number, drawn.prompts + drawn.after_prompt, made, mean)

    def _calls(self, rng: np.random.Generator, turns: int) -> FloatArray | None:
        tools = self.task.tools
        if tools is None:
            return None
        shape = (self.task.samples, turns)
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

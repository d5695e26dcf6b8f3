"""The work of a task, drawn anew for every step: the same for all policies of one seed.

With `outcomes`, tools return text and the returns tell of a trajectory's length. The law is built from
published figures. Tokens after the prompt, T, follow the task's law of responses, whatever the outcomes:

- Tool output is part of T (`read_tokens`). Libra (arXiv 2606.03077, motivation data) gives 1K tokens of it
  for trajectories below 8K in all, and 12.5K at 21K; between them it is linear, below in proportion, above
  constant.
- A trajectory is *brief* below 8K, *failing* from 29K on (repeated failures make more than 40K in the same
  data; 29K is the geometric mean of 21K and 40K), and *reading* between. Each has a sign: a small payload
  and success, a large payload and success, a small payload and failure.
- Each return shows the sign of its trajectory with probability `telling`, else one of the three by chance,
  and the name of one of `tools` tools, which tells nothing.
- ln T of the trajectories of one prompt has the share `prompt_share` of its variance in common, over all
  steps.

Two published accuracies fix the two free numbers, for the three kinds at a mean of 11.5K tokens and sigma
1: a predictor that sees the prompt alone is right in 65.2 % of cases (`prompt_share` 0.38), and prompt and
outcomes tell 91.1 % (`telling` 0.73 is what the best possible guess needs after two returns). Whether Libra
counts in this way is not known; `benchmarks/routing_kinds.py` gives the accuracies of any other pair.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from libra_plan.models.lengths import FloatArray, IntArray
from libra_plan.models.topology import GpuId
from libra_plan.planner.simulate.replica import Trajectory
from libra_plan.planner.simulate.world import Outcomes, World, WorldTask, world_cluster
from libra_plan.profiles.schema_workload import LogNormal

__all__ = [
    "BRIEF_TOKENS",
    "FAILING_TOKENS",
    "SIGNS",
    "DrawnStep",
    "DrawnWork",
    "StepLengths",
    "draw_failures",
    "log_normal",
    "random_stream",
    "read_tokens",
    "turn_counts",
]

BRIEF_TOKENS, FAILING_TOKENS = 8_000, 29_000
SIGNS = ("small/success", "large/success", "small/failure")
_NORMAL = NormalDist()


def random_stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the random stream of one thing: draws for one thing never change those for another."""
    keys = [zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names]
    return np.random.default_rng([seed, *keys])


def log_normal(
    rng: np.random.Generator, location: float, sigma: float, shape: int | tuple[int, ...]
) -> FloatArray:
    """Draw log-normal numbers that are the same on every machine, to nine decimals.

    The last bits of NumPy's `exp` depend on the processor. One of them may swap two events of a run, and
    from there on the run is another one.
    """
    normal: FloatArray = location + sigma * rng.standard_normal(shape)
    drawn: FloatArray = np.array([math.exp(each) for each in normal.ravel().tolist()]).reshape(normal.shape)
    return np.round(drawn, 9)


def draw_failures(world: World, seed: int) -> Iterator[tuple[GpuId, float, float]]:
    """Draw the GPUs that fail, the second when they do, and the seconds until they are repaired.

    They depend on the world and the seed alone, not on what a policy does.
    """
    failures, ends = world.failures, world.hours * 3600.0
    if failures is None:
        return
    rng = random_stream(seed, "failures")
    for gpu in world_cluster(world).gpus:
        at = round(float(rng.exponential(failures.mtbf_hours * 3600.0)), 6)
        while at < ends:
            repair = failures.repair_median_s * float(log_normal(rng, 0.0, failures.repair_sigma, 1)[0])
            yield gpu, at, repair
            at += repair + round(float(rng.exponential(failures.mtbf_hours * 3600.0)), 6)


@dataclass(frozen=True)
class DrawnStep:
    """The trajectories of a step in the order they are handed out; for tasks that only train, lengths."""

    step: int
    lengths: IntArray
    trajectories: tuple[Trajectory, ...]
    mean_response: float


@dataclass(frozen=True)
class StepLengths:
    """What is drawn for a step, one row per trajectory: tokens, and seconds of each turn's tool call.

    `responses` are generated, `read` are returned by tools and only prefilled. `calls_s` is None where no
    tool is called. With outcomes, `turns` counts the turns of each trajectory, calls beyond them take 0 s,
    and `states` has what was returned in each turn.
    """

    prompts: IntArray
    responses: IntArray
    read: IntArray
    calls_s: FloatArray | None = None
    turns: IntArray | None = None
    prompt_ids: IntArray | None = None
    states: tuple[tuple[str, ...], ...] = ()

    @property
    def after_prompt(self) -> IntArray:
        """Return what follows each prompt, tool output included, tokens."""
        return self.responses + self.read


@dataclass
class DrawnWork:
    """Draw the steps of one task."""

    task: WorldTask
    seed: int
    _kept: dict[int, DrawnStep] = field(default_factory=dict)

    def step(self, number: int) -> DrawnStep:
        """Return the work of a step; the last few are kept."""
        if number not in self._kept:
            drawn = self.lengths(number)
            made = self._trajectories(number, drawn) if self.task.costs.decode else ()
            mean = float(drawn.after_prompt.mean())
            self._kept[number] = DrawnStep(number, drawn.prompts + drawn.after_prompt, made, mean)
            self._kept.pop(number - 16, None)
        return self._kept[number]

    def lengths(self, number: int) -> StepLengths:
        """Draw the lengths of a step; its trajectories are made of them."""
        task, rng = self.task, random_stream(self.seed, "work", self.task.id, number)
        prompts = _below_cut(task.prompts, task.samples, rng)
        law = task.responses.law(task.responses.mean_at(number))
        if task.outcomes is not None:
            return self._with_outcomes(number, task.outcomes, law, prompts, rng)
        responses = _below_cut(law, task.samples, rng)
        calls = self._calls(rng, task.turns) if task.costs.decode else None
        return StepLengths(prompts, responses, np.zeros_like(responses), calls)

    def _with_outcomes(
        self, number: int, outcomes: Outcomes, law: LogNormal, prompts: IntArray, rng: np.random.Generator
    ) -> StepLengths:
        ids = outcomes.prompt_of(number, self.task.samples)
        common = random_stream(self.seed, "prompts", self.task.id).standard_normal(outcomes.prompts)[ids]
        whole = _correlated(law, common, outcomes.prompt_share, rng)
        turns = turn_counts(outcomes, whole, self.task.turns)
        calls = self._calls(rng, int(turns.max()))
        if calls is not None:
            calls[np.arange(calls.shape[1]) >= turns[:, None]] = 0.0
        states = _returned_states(outcomes, whole, turns, rng)
        read = read_tokens(whole)
        return StepLengths(prompts, whole - read, read, calls, turns, ids, states)

    def _trajectories(self, number: int, drawn: StepLengths) -> tuple[Trajectory, ...]:
        calls = [()] * self.task.samples if drawn.calls_s is None else drawn.calls_s.tolist()
        rows = zip(drawn.prompts.tolist(), drawn.responses.tolist(), calls, strict=True)
        made = tuple(
            Trajectory(number, at, prompt, response, self.task.turns, tuple(own))
            for at, (prompt, response, own) in enumerate(rows)
        )
        if drawn.turns is not None and drawn.prompt_ids is not None:
            columns = (drawn.read.tolist(), drawn.turns.tolist(), drawn.prompt_ids.tolist(), drawn.states)
            for each, read, turns, prompt_id, states in zip(made, *columns, strict=True):
                each.read, each.turns, each.prompt_id, each.states = read, turns, prompt_id, states
                each.calls_s = each.calls_s[:turns]
        return made

    def _calls(self, rng: np.random.Generator, turns: int) -> FloatArray | None:
        tools = self.task.tools
        if tools is None:
            return None
        location = math.log(tools.mean_s) - tools.sigma**2 / 2.0
        return log_normal(rng, location, tools.sigma, (self.task.samples, turns))


def _below_cut(law: LogNormal, count: int, rng: np.random.Generator) -> IntArray:
    """Draw lengths from a law; what passes its cut is drawn again."""
    location = math.log(law.median_tokens)
    drawn = log_normal(rng, location, law.sigma, count)
    while (over := drawn > law.max_tokens).any():
        drawn[over] = log_normal(rng, location, law.sigma, int(over.sum()))
    return np.maximum(np.floor(drawn), 1.0).astype(np.int64)


def _correlated(law: LogNormal, common: FloatArray, share: float, rng: np.random.Generator) -> IntArray:
    """Draw lengths of exactly this law; equal normal draws `common` give similar lengths."""
    own = rng.standard_normal(len(common))
    mixed = math.sqrt(share) * common + math.sqrt(1.0 - share) * own
    location = math.log(law.median_tokens)
    kept = _NORMAL.cdf((math.log(law.max_tokens) - location) / law.sigma) if law.sigma else 1.0
    levels = [min(max(_NORMAL.cdf(value) * kept, 1e-12), 1.0 - 1e-12) for value in mixed.tolist()]
    drawn = [math.exp(location + law.sigma * _NORMAL.inv_cdf(level)) for level in levels]
    whole: IntArray = np.clip(np.floor(np.round(drawn, 9)), 1, law.max_tokens).astype(np.int64)
    return whole


def read_tokens(after_prompt: IntArray) -> IntArray:
    """Return the tokens of tool output among those after the prompt."""
    read = np.interp(after_prompt, (0.0, 8_000.0, 21_000.0), (0.0, 1_000.0, 12_500.0))
    return np.floor(read).astype(np.int64)


def turn_counts(outcomes: Outcomes, after_prompt: IntArray, turns: int) -> IntArray:
    """Return the number of turns of each trajectory."""
    if outcomes.turn_tokens is None:
        return np.full(len(after_prompt), turns, dtype=np.int64)
    return np.maximum(np.rint(after_prompt / outcomes.turn_tokens), 1).astype(np.int64)


def _returned_states(
    outcomes: Outcomes, after_prompt: IntArray, turns: IntArray, rng: np.random.Generator
) -> tuple[tuple[str, ...], ...]:
    """Draw the states that the tools of each trajectory return, one a turn."""
    kinds = np.digitize(after_prompt, (BRIEF_TOKENS, FAILING_TOKENS))
    shape = (len(after_prompt), int(turns.max()))
    told = rng.random(shape) < outcomes.telling
    signs = np.where(told, kinds[:, None], rng.integers(0, len(SIGNS), shape))
    names = [f"tool{tool}/{sign}" for tool in range(outcomes.tools) for sign in SIGNS]
    drawn = (rng.integers(0, outcomes.tools, shape) * len(SIGNS) + signs).tolist()
    return tuple(
        tuple(names[each] for each in own[:count]) for own, count in zip(drawn, turns.tolist(), strict=True)
    )

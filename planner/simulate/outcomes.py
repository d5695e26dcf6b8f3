"""What tools return along a trajectory, and what that tells of its length: a law from published figures.

Tokens after the prompt, T, follow the task's law of responses, whatever the outcomes. What is drawn
besides:

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
from statistics import NormalDist
from typing import Annotated

import numpy as np
from msgspec import Meta

from libra_plan.models.lengths import FloatArray, IntArray
from libra_plan.profiles.schema_base import Count, File
from libra_plan.profiles.schema_workload import LogNormal

__all__ = [
    "BRIEF_TOKENS",
    "FAILING_TOKENS",
    "SIGNS",
    "Outcomes",
    "correlated_lengths",
    "read_tokens",
    "turns_of",
    "with_outcomes",
]

BRIEF_TOKENS, FAILING_TOKENS = 8_000, 29_000
SIGNS = ("small/success", "large/success", "small/failure")
_NORMAL = NormalDist()

Share = Annotated[float, Meta(ge=0, le=1)]


class Outcomes(File, frozen=True, kw_only=True):
    """Outcomes of tool calls. A step takes the next samples ÷ `per_prompt` of `prompts` prompts, in turn.

    A trajectory has as many turns as `turn_tokens` go into it; without, as many as the task says.
    """

    prompts: Count
    per_prompt: Count
    prompt_share: Share = 0.38
    telling: Share = 0.73
    tools: Count = 1
    turn_tokens: Count | None = None

    def prompt_of(self, step: int, samples: int) -> IntArray:
        """Give the number of the prompt of each trajectory of a step; shape (samples,)."""
        first = step * -(-samples // self.per_prompt)
        numbers: IntArray = (first + np.arange(samples) // self.per_prompt) % self.prompts
        return numbers


def read_tokens(after_prompt: IntArray) -> IntArray:
    """Give the tokens of tool output among those after the prompt."""
    read = np.interp(after_prompt, (0.0, 8_000.0, 21_000.0), (0.0, 1_000.0, 12_500.0))
    return np.floor(read).astype(np.int64)


def correlated_lengths(
    law: LogNormal, common: FloatArray, share: float, rng: np.random.Generator
) -> IntArray:
    """Draw lengths of exactly that law, of which those with the same `common` normal draw are alike."""
    mixed = math.sqrt(share) * common + math.sqrt(1.0 - share) * rng.normal(size=len(common))
    location = math.log(law.median_tokens)
    kept = _NORMAL.cdf((math.log(law.max_tokens) - location) / law.sigma) if law.sigma else 1.0
    levels = [min(max(_NORMAL.cdf(value) * kept, 1e-12), 1.0 - 1e-12) for value in mixed.tolist()]
    drawn = [math.exp(location + law.sigma * _NORMAL.inv_cdf(level)) for level in levels]
    return np.clip(np.floor(drawn), 1, law.max_tokens).astype(np.int64)


def turns_of(outcomes: Outcomes, after_prompt: IntArray, turns: int) -> IntArray:
    """Give the turns of each trajectory."""
    if outcomes.turn_tokens is None:
        return np.full(len(after_prompt), turns, dtype=np.int64)
    return np.maximum(np.rint(after_prompt / outcomes.turn_tokens), 1).astype(np.int64)


def with_outcomes(
    outcomes: Outcomes, after_prompt: IntArray, turns: IntArray, rng: np.random.Generator
) -> list[tuple[str, ...]]:
    """Draw the states that the tools of each trajectory return, one a turn."""
    kinds = np.digitize(after_prompt, (BRIEF_TOKENS, FAILING_TOKENS))
    shape = (len(after_prompt), int(turns.max()))
    told = rng.random(shape) < outcomes.telling
    signs = np.where(told, kinds[:, None], rng.integers(0, len(SIGNS), shape))
    names = [f"tool{tool}/{sign}" for tool in range(outcomes.tools) for sign in SIGNS]
    drawn = (rng.integers(0, outcomes.tools, shape) * len(SIGNS) + signs).tolist()
    return [tuple(names[k] for k in own[:count]) for own, count in zip(drawn, turns.tolist(), strict=True)]

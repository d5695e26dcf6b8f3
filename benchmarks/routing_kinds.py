"""How well the kind of a trajectory can be guessed under a law of outcomes: brief, reading or failing."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from libra_plan.planner.simulate.work import BRIEF_TOKENS, FAILING_TOKENS, SIGNS
from libra_plan.planner.simulate.world import Outcomes
from libra_plan.profiles.schema_workload import LogNormal

__all__ = ["what_can_be_told"]

_NORMAL = NormalDist()


def what_can_be_told(
    law: LogNormal, outcomes: Outcomes, returns: int, prompts: int = 4_000
) -> tuple[float, ...]:
    """Return how often the best guess of a trajectory's kind is right, from the prompt and 0, 1, … returns.

    Every prompt's lengths are supposed known; prompts are quantiles of their law.
    """
    location = math.log(law.median_tokens)
    kept = _NORMAL.cdf((math.log(law.max_tokens) - location) / law.sigma)
    edges = [
        _NORMAL.inv_cdf(min(_NORMAL.cdf((math.log(edge) - location) / law.sigma) / kept, 1.0 - 1e-12))
        for edge in (BRIEF_TOKENS, FAILING_TOKENS)
    ]
    own = math.sqrt(1.0 - outcomes.prompt_share)
    at = [math.sqrt(outcomes.prompt_share) * _NORMAL.inv_cdf((i + 0.5) / prompts) for i in range(prompts)]
    below = np.array([[_NORMAL.cdf((edge - common) / max(own, 1e-9)) for edge in edges] for common in at])
    joint = np.diff(below, axis=1, prepend=0.0, append=1.0)[:, None, :]  # prompt × what was shown × kind
    chance = (1.0 - outcomes.telling) / len(SIGNS)
    shows = np.full((len(SIGNS), len(SIGNS)), chance) + outcomes.telling * np.eye(len(SIGNS))
    right = []
    for _ in range(returns + 1):
        right.append(float(joint.max(axis=2).sum(axis=1).mean()))
        joint = (joint[:, :, None, :] * shows[None, None, :, :]).reshape(prompts, -1, len(SIGNS))
    return tuple(right)

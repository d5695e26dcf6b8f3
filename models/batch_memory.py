"""Bound the memory a batch needs: from a profile, or from an engine's own figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models.engine_memory import BLOCK_TOKENS, engine_static, kv_mib_per_token
from libra_plan.models.fit import FittedProfile
from libra_plan.models.held_gradients import with_held_gradients
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query
from libra_plan.profiles.schema import ProfileFile

__all__ = ["cache_need", "engine_need", "profile_need"]

_ACCUMULATED = 2  # micro-batches: all but the first find gradients there, and a smaller size makes more


def cache_need(
    lengths_tokens: Sequence[int], *, fixed_mib: float, per_token_mib: float
) -> Callable[[int], float]:
    """Bound what an engine needs for n sequences at once: the n longest of the lengths, all at their end.

    `fixed_mib`: weights and what else is there with an empty cache; `per_token_mib`: keys and values
    of a token on one GPU (`engine_memory.kv_mib_per_token`). Beyond the lengths known, all further
    sequences are as long as the longest.
    """
    falling = np.sort(np.asarray(lengths_tokens, dtype=float))[::-1]
    if len(falling) == 0:
        raise RefusedError("no length is known", way_out="give the lengths of earlier sequences")
    sums = np.cumsum(falling)

    def need(sequences: int) -> float:
        known = min(sequences, len(sums))
        tokens = float(sums[known - 1]) + (sequences - known) * float(falling[0])
        return fixed_mib + per_token_mib * tokens

    return need


def engine_need(
    profile: ProfileFile, lengths_tokens: Sequence[int], layout: Layout
) -> Callable[[int], float]:
    """Bound what an engine needs for n sequences at once, from its model's shape (`engine_memory`).

    For serving tables, which measured times alone. The last block of each sequence counts whole.
    """
    return cache_need(
        [-(-length // BLOCK_TOKENS) * BLOCK_TOKENS for length in lengths_tokens],
        fixed_mib=engine_static(profile, layout).high,
        per_token_mib=kv_mib_per_token(profile.model, profile.software, layout),
    )


def profile_need(
    fitted: FittedProfile, lengths_tokens: Sequence[int], layout: Layout, dp: int = 1
) -> Callable[[int], float]:
    """Bound what n sequences need by a profile's upper bound; infinite where the profile refuses.

    Training and scoring: a micro-batch of the n longest, each padded to the longest; in training beside
    the gradients of an earlier one. Decoding: the n longest at once, at their mean.
    """
    profile = fitted.profile
    falling = sorted(lengths_tokens, reverse=True)
    padded = profile.phase in ("train", "score")

    def need(sequences: int) -> float:
        longest = falling[:sequences]
        length = float(falling[0]) if padded else sum(longest) / len(longest)
        query = Query(float(sequences), length, tp=layout.tp, pp=layout.pp, cp=layout.cp, ep=layout.ep, dp=dp)
        try:
            peak = fitted.memory_mib(query)
        except RefusedError:
            return math.inf
        if profile.phase == "train":
            peak = with_held_gradients(profile, layout, dp, _ACCUMULATED, peak)
        return peak.high + (fitted.outside_allocator_mib or 0.0)

    return need

"""Seconds and memory of forward passes: reference, reward, critic and judge scores, prompt prefill."""

from __future__ import annotations

from libra_plan.models.fit import FittedProfile
from libra_plan.models.lengths import LengthSample
from libra_plan.models.packing import Share, busiest_shares
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate
from libra_plan.models.training_stage import (
    StageCost,
    most_micro_batches,
    packed_memory,
    rounds_note,
    share_s,
    slowest,
)

__all__ = ["prefill_s_per_token", "scoring_cost"]


def scoring_cost(
    profile: FittedProfile,
    sequences: LengthSample,
    budget_tokens: int,
    replicas: int,
    *,
    layout: Layout = Layout(),
    shortest_tokens: float = 1.0,
    allow_prior: bool = False,
) -> StageCost:
    """Price one forward pass over all sequences: the busiest replica's micro-batches."""
    shares = busiest_shares(sequences, replicas, budget_tokens)
    seconds = slowest(share_s(profile, share, layout, shortest_tokens, allow_prior) for share in shares)
    memory = packed_memory(profile, min(budget_tokens, sequences.total), layout, 1, allow_prior)
    return StageCost(seconds, memory, (rounds_note(shares),), most_micro_batches(shares))


def prefill_s_per_token(
    profile: FittedProfile,
    prefixes: LengthSample,
    batch_tokens: float,
    *,
    layout: Layout = Layout(),
    shortest_tokens: float = 1.0,
    allow_prior: bool = False,
) -> Estimate:
    """Estimate the seconds per prefilled token of an engine that prefills `batch_tokens` at a time.

    Prefixes count with S = ΣS²/ΣS, as in packing; a batch holds at least one of them.
    """
    length = max(prefixes.squares_ratio, shortest_tokens)
    tokens = max(batch_tokens, length)
    seconds = share_s(profile, Share(1, tokens, tokens * length), layout, shortest_tokens, allow_prior)
    return seconds.scaled(1.0 / tokens)

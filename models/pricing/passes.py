"""Seconds and memory of one training step over data-parallel replicas.

Seconds and memory of forward passes: reference, reward, critic and judge scores, prompt prefill.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from libra_plan.models.costs.base import places_of
from libra_plan.models.costs.passes import SoftFloorForm
from libra_plan.models.fit import FittedProfile
from libra_plan.models.lengths import LengthSample
from libra_plan.models.memory.states import micro_batches_of, with_held_gradients
from libra_plan.models.packing import Share, busiest_shares
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate
from libra_plan.models.query import Query
from libra_plan.models.rollout.streaming import Stream

__all__ = [
    "StageCost",
    "bubble_turns",
    "micro_batch_query",
    "most_micro_batches",
    "packed_memory",
    "prefill_s_per_token",
    "rounds_note",
    "scoring_cost",
    "share_s",
    "slowest",
    "training_cost",
]


@dataclass(frozen=True, slots=True)
class StageCost:
    """What a stage costs: seconds per step, peak reserved MiB per GPU (its `high` bounds), remarks.

    `micro_batches` are those of the busiest replica; a rollout that never drains has its `stream`.
    """

    time_s: Estimate
    memory_mib: Estimate
    notes: tuple[str, ...] = ()
    micro_batches: int = 1
    stream: Stream | None = None


def micro_batch_query(share: Share, layout: Layout, shortest_tokens: float = 1.0) -> Query:
    """Ask for a packed micro-batch as the batch of equal sequences with the same ΣS and ΣS².

    Time per token is affine in the length with ΣS²/ΣS in its place, so N packed tokens cost what
    N/S sequences of S = ΣS²/ΣS cost. Below `shortest_tokens`, the shortest length measured, the
    question is asked at it: an upper bound, since seconds grow with tokens and with length.
    """
    length = max(share.length, shortest_tokens)
    return _query(max(share.tokens / length, 1.0), length, layout)


def rounds_note(shares: Sequence[Share]) -> str:
    """Return a note on how many micro-batches the busiest replica runs."""
    rounds = most_micro_batches(shares)
    return f"{rounds} micro-batch{'es' if rounds > 1 else ''} per replica"


def most_micro_batches(shares: Sequence[Share]) -> int:
    """Count the micro-batches of the busiest replica."""
    return max(share.micro_batches for share in shares)


def slowest(estimates: Iterable[Estimate]) -> Estimate:
    """Take the largest estimate, bound by bound."""
    result: Estimate | None = None
    for estimate in estimates:
        result = estimate if result is None else result.at_least(estimate)
    if result is None:
        raise ValueError("nothing to compare")
    return result


def training_cost(
    profile: FittedProfile,
    sequences: LengthSample,
    budget_tokens: int,
    replicas: int,
    *,
    layout: Layout = Layout(),
    link_gib_per_s: float | None = None,
    shortest_tokens: float = 1.0,
    allow_prior: bool = False,
) -> StageCost:
    """Price one step: the busiest replica's micro-batches, the last of them with the all-reduce.

    Every replica gets at least one micro-batch or the option is refused. A profile measures whole
    optimizer steps, so each micro-batch is charged one update; with gradient accumulation the true
    time is lower, as the low bound is. Fully sharded states (ZeRO-3) gather and scatter in every micro-batch.
    `link_gib_per_s` is the bandwidth between replicas; None asks the profile for its own.
    """
    shares = busiest_shares(sequences, replicas, budget_tokens)
    sharded = profile.profile.software.zero_stage == 3
    parts = []
    for share in shares:
        alone = micro_batch_query(share, layout, shortest_tokens)
        joined = replace(alone, dp=replicas, link_gib_per_s=link_gib_per_s)
        last = profile.time_s(joined, allow_prior=allow_prior)
        turns, stages = share.micro_batches + bubble_turns(profile, layout), bubble_turns(profile, layout) + 1
        one = last if sharded or replicas == 1 else profile.time_s(alone, allow_prior=allow_prior)
        before = _perhaps_without_update(profile, alone, one).scaled((turns - 1) / stages)
        parts.append(before.plus(last.scaled(1 / stages)))
    rounds = most_micro_batches(shares)
    memory = packed_memory(profile, min(budget_tokens, sequences.total), layout, replicas, allow_prior)
    memory = with_held_gradients(profile.profile, layout, replicas, rounds, memory)
    return StageCost(slowest(parts), memory, (rounds_note(shares),), rounds)


def _perhaps_without_update(profile: FittedProfile, query: Query, time_s: Estimate) -> Estimate:
    """Take what tokens do not move off the low bound of a micro-batch that does no update."""
    fit = profile.by_layout.get(query.layout)
    form = None if fit is None or fit.time is None else fit.time.form
    if not isinstance(form, SoftFloorForm) or micro_batches_of(profile.profile) > 1:
        return time_s
    at = places_of([(query.batch_sequences, query.seq_len_tokens or 1.0, 1.0)])
    whole = form.work(at)
    rest = np.maximum(whole - form.fixed_s, 1e-9)
    ratio = float(form.over(rest, 0.0)[0] / form.over(whole, 0.0)[0])
    return replace(time_s, low=time_s.low * ratio)


def share_s(
    profile: FittedProfile, share: Share, layout: Layout, shortest_tokens: float, allow_prior: bool
) -> Estimate:
    """Estimate the seconds of all micro-batches of one replica."""
    query = micro_batch_query(share, layout, shortest_tokens)
    more = bubble_turns(profile, layout)
    once = profile.time_s(query, allow_prior=allow_prior)
    return once.scaled((share.micro_batches + more) / (1 + more))


def bubble_turns(profile: FittedProfile, layout: Layout) -> int:
    """Count the turns of a pipeline's bubble, p − 1; measured layouts have theirs in their times.

    A micro-batch that was not measured takes the time of all its p stages, so m of them take
    (m + p − 1)/p of it.
    """
    return layout.pp - 1 if layout not in profile.layouts else 0


def packed_memory(
    profile: FittedProfile, tokens: float, layout: Layout, dp: int = 1, allow_prior: bool = False
) -> Estimate:
    """Estimate the peak of a full micro-batch, MiB per GPU, as one sequence of its length."""
    return profile.memory_mib(replace(_query(1.0, tokens, layout), dp=dp), allow_prior=allow_prior)


def _query(batch: float, length: float, layout: Layout) -> Query:
    return Query(batch, length, layout=layout)


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

"""Seconds and memory of training steps and of forward passes over data-parallel replicas.

Forward passes are those of reference, reward, critic and judge scores, and prefill of prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from libra_plan.models.costs.base import places_of
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
    "prefill_s_per_token",
    "scoring_cost",
    "share_s",
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


def _micro_batch_query(share: Share, layout: Layout, shortest_tokens: float = 1.0) -> Query:
    """Return the query for a packed micro-batch: a batch of equal sequences with the same ΣS and ΣS².

    Time per token is affine in the length with ΣS²/ΣS in its place, so N packed tokens cost what
    N/S sequences of S = ΣS²/ΣS cost. Below `shortest_tokens`, the shortest length measured, the
    question is asked at it: an upper bound, since seconds grow with tokens and with length.
    """
    length = max(share.length, shortest_tokens)
    return Query(max(share.tokens / length, 1.0), length, layout=layout)


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
        alone = _micro_batch_query(share, layout, shortest_tokens)
        joined = replace(alone, dp=replicas, link_gib_per_s=link_gib_per_s)
        last = profile.time_s(joined, allow_prior=allow_prior)
        turns, stages = (
            share.micro_batches + _bubble_turns(profile, layout),
            _bubble_turns(profile, layout) + 1,
        )
        one = last if sharded or replicas == 1 else profile.time_s(alone, allow_prior=allow_prior)
        before = _perhaps_without_update(profile, alone, one).scaled((turns - 1) / stages)
        parts.append(before.plus(last.scaled(1 / stages)))
    rounds = max(share.micro_batches for share in shares)
    full = Query(1.0, min(budget_tokens, sequences.total), layout=layout, dp=replicas)
    memory = profile.memory_mib(full, allow_prior=allow_prior)
    memory = with_held_gradients(profile.profile, layout, replicas, rounds, memory)
    return _stage_cost(parts, memory, rounds)


def _perhaps_without_update(profile: FittedProfile, query: Query, time_s: Estimate) -> Estimate:
    """Subtract the constant work from the low bound of a micro-batch that does no update."""
    fit = profile.by_layout.get(query.layout)
    if fit is None or fit.time is None or micro_batches_of(profile.profile) > 1:
        return time_s
    at = places_of([(query.batch_sequences, query.seq_len_tokens or 1.0, 1.0)])
    return replace(time_s, low=time_s.low * float(fit.time.form.share_without_constant(at)[0]))


def share_s(
    profile: FittedProfile, share: Share, layout: Layout, shortest_tokens: float, allow_prior: bool
) -> Estimate:
    """Estimate the seconds of all micro-batches of one replica."""
    query = _micro_batch_query(share, layout, shortest_tokens)
    more = _bubble_turns(profile, layout)
    once = profile.time_s(query, allow_prior=allow_prior)
    return once.scaled((share.micro_batches + more) / (1 + more))


def _bubble_turns(profile: FittedProfile, layout: Layout) -> int:
    """Count the turns of a pipeline's bubble, p − 1; measured layouts have theirs in their times.

    A micro-batch that was not measured takes the time of all its p stages, so m of them take
    (m + p − 1)/p of it.
    """
    return layout.pp - 1 if layout not in profile.layouts else 0


def _stage_cost(parts: Sequence[Estimate], memory_mib: Estimate, rounds: int) -> StageCost:
    """Return the cost of the slowest replica, bound by bound, with a note on its micro-batches."""
    note = f"{rounds} micro-batch{'es' if rounds > 1 else ''} per replica"
    return StageCost(reduce(Estimate.at_least, parts), memory_mib, (note,), rounds)


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
    parts = [share_s(profile, share, layout, shortest_tokens, allow_prior) for share in shares]
    full = Query(1.0, min(budget_tokens, sequences.total), layout=layout)
    memory = profile.memory_mib(full, allow_prior=allow_prior)
    return _stage_cost(parts, memory, max(share.micro_batches for share in shares))


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

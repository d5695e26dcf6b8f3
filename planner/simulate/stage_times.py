"""Stage times: training as the engine draws it, and the closed forms of all stages.

Both come from the same costs. The engine times the batch that was generated, replica by replica; the planner
gets the closed forms of `models/` on quantiles of the law of lengths.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from libra_plan.models.lengths import IntArray
from libra_plan.models.packing import pack
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.makespan import Trajectories, makespan_s, pair_lengths
from libra_plan.models.rollout.streaming import Stream, continuous_s, stream_of
from libra_plan.planner.simulate.work import log_normal, read_tokens, turn_counts
from libra_plan.planner.simulate.world import DecodeCosts, Outcomes, Training, WorldTask

__all__ = [
    "expected_step_lengths",
    "replica_train_s",
    "rollout_closed_s",
    "split_evenly",
    "stream_closed",
    "train_closed_s",
    "train_stage",
]

_ORDERS = 2


def split_evenly(lengths: IntArray, replicas: int) -> list[IntArray]:
    """Split sequences over replicas back and forth, longest first."""
    order, ends = _turns(len(lengths), replicas)
    return np.split(np.sort(lengths)[::-1][order], ends)


@lru_cache(maxsize=256)
def _turns(count: int, replicas: int) -> tuple[IntArray, IntArray]:
    """Return the order that puts each replica's sequences side by side, and where those of each end."""
    there = np.arange(replicas)
    owner = np.resize(np.concatenate((there, there[::-1])), count)
    return np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=replicas))[:-1]


def replica_train_s(costs: Training, lengths: IntArray) -> float:
    """Return the seconds of one replica's micro-batches: fixed per micro-batch, then by ΣS and ΣS²."""
    if not len(lengths):
        return 0.0
    own = lengths.astype(float)
    work = costs.per_token_s * float(own.sum()) + costs.per_square_s * float((own**2).sum())
    if not costs.fixed_s:
        return work
    return costs.fixed_s * len(pack(lengths.tolist(), costs.micro_batch_tokens)) + work


def train_stage(
    costs: Training, lengths: IntArray, replicas: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Draw the stragglers of one step; return its seconds and the GPU-seconds that were used in it."""
    slower = log_normal(rng, 0.0, costs.straggler_sigma, replicas).tolist()
    own = [
        replica_train_s(costs, part) * slow
        for part, slow in zip(split_evenly(lengths, replicas), slower, strict=True)
    ]
    all_reduce_s = costs.all_reduce_s if replicas > 1 else 0.0
    return max(own) + all_reduce_s, (sum(own) + all_reduce_s * replicas) * costs.gpus


def _worst_straggler(sigma: float, replicas: int) -> float:
    """Return the median of the slowest of so many log-normal factors."""
    return math.exp(sigma * NormalDist().inv_cdf(0.5 ** (1.0 / replicas)))


def train_closed_s(costs: Training, lengths: IntArray, replicas: int) -> float:
    """Return the slowest replica's seconds, with the median of the worst straggler, and the all-reduce."""
    slowest = max(replica_train_s(costs, own) for own in split_evenly(lengths, replicas))
    joined = costs.all_reduce_s if replicas > 1 else 0.0
    return slowest * _worst_straggler(costs.straggler_sigma, replicas) + joined


@lru_cache(maxsize=512)
def _orders(task: WorldTask, mean_tokens: float) -> tuple[Trajectories, ...]:
    prompts, responses = task.samples_at(mean_tokens)
    rng = np.random.default_rng(0)
    wait = (task.tools.mean_s, task.tools.sigma) if task.tools else (0.0, 0.0)
    orders = (pair_lengths(prompts, responses, rng, task.turns, *wait) for _ in range(_ORDERS))
    return tuple(orders if task.outcomes is None else (_returned(task.outcomes, each) for each in orders))


def _returned(outcomes: Outcomes, order: Trajectories) -> Trajectories:
    """Count what tools return as part of the prompt: it is prefilled, and not generated."""
    read = read_tokens(order.response_tokens)
    return replace(
        order,
        prompt_tokens=order.prompt_tokens + read,
        response_tokens=order.response_tokens - read,
        turns=max(1, round(float(turn_counts(outcomes, order.response_tokens, order.turns).mean()))),
    )


def rollout_closed_s(
    task: WorldTask, costs: DecodeCosts, mean_tokens: float, replicas: int, *, drains: bool
) -> float:
    """Return the seconds of one step's rollout on replicas of one tp, by `models/rollout/makespan.py`.

    `drains`: all start at once and the slowest counts; else the replicas never drain.
    """
    share = -(-task.samples // replicas) * (1 if drains else 1 + task.staleness)
    admission = Admission(min(share, costs.max_sequences), costs.kv_tokens)
    fit, found = costs.coefficients(), []
    for order in _orders(task, mean_tokens):
        prefill = costs.prefill_s_per_token * order.prompt_tokens.astype(float)
        if drains:
            found.append(makespan_s(order, fit, admission, replicas, prefill))
        else:
            whole = float(prefill.sum())
            found.append(continuous_s(order, fit, admission, replicas, whole))
    return sum(found) / len(found)


def stream_closed(task: WorldTask, costs: DecodeCosts, mean_tokens: float, replicas: int) -> Stream:
    """Return work and latency of a rollout that never drains, on replicas of one tp."""
    order = _orders(task, mean_tokens)[0]
    prefill_s = costs.prefill_s_per_token * float(order.prompt_tokens.sum())
    return stream_of(order, costs.coefficients(), replicas, prefill_s)


def expected_step_lengths(task: WorldTask, mean_tokens: float) -> IntArray:
    """Return quantiles of whole sequences of a step, tokens."""
    return _orders(task, mean_tokens)[0].final_context

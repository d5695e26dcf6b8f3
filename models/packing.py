"""Deal sequences to replicas and pack each share into micro-batches of a strict token budget."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models.lengths import LengthSample

__all__ = ["Share", "busiest_shares", "pack"]


@dataclass(frozen=True, slots=True)
class Share:
    """What one replica runs: `micro_batches` alike, each of `tokens` with ΣS² = `squares`."""

    micro_batches: int
    tokens: float
    squares: float

    @property
    def length(self) -> float:
        """Give ΣS²/ΣS, tokens: the length whose attention cost per token the micro-batch has."""
        return self.squares / self.tokens


def pack(lengths: Sequence[int], budget_tokens: int) -> list[list[int]]:
    """Pack by best fit, longest first, so that no group's sum passes the budget.

    ⌈Σ/budget⌉ groups would only be a lower bound: eight sequences of 7 with a budget of 8 need
    eight groups.
    """
    groups: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (tokens left, group), ascending
    for length in sorted(lengths, reverse=True):
        at = bisect.bisect_left(room, (length, -1))
        if at == len(room):
            groups.append([])
            left, group = budget_tokens, len(groups) - 1
        else:
            left, group = room.pop(at)
        if left < length:
            raise _too_long(length, budget_tokens)
        groups[group].append(length)
        if left > length:
            bisect.insort(room, (left - length, group))
    return groups


def busiest_shares(sequences: LengthSample, replicas: int, budget_tokens: int) -> tuple[Share, ...]:
    """Give the shares that may be slowest when sequences are dealt back and forth by length.

    Those are the replica with most tokens and the one with the largest ΣS²: seconds are affine in
    both. A share is the mean of its micro-batches, which has the same sum of seconds.
    """
    if len(sequences) < replicas:
        raise RefusedError(
            "a replica would have nothing to do",
            got=f"{len(sequences)} sequences for {replicas} replicas",
            allowed=f"at most {len(sequences)} replicas",
            way_out="raise samples or use fewer replicas",
        )
    if sequences.longest > budget_tokens:
        raise _too_long(sequences.longest, budget_tokens)
    falling = sequences.tokens[::-1]
    there = np.arange(replicas)
    owner = np.resize(np.concatenate((there, there[::-1])), len(falling))
    loads = falling.astype(float)
    slowest = {int(np.bincount(owner, loads**power, replicas).argmax()) for power in (1, 2)}
    shares = []
    for replica in sorted(slowest):
        own = falling[owner == replica]
        number = len(pack(own.tolist(), budget_tokens))
        squares = float((own.astype(float) ** 2).sum())
        shares.append(Share(number, float(own.sum()) / number, squares / number))
    return tuple(shares)


def _too_long(length: int, budget_tokens: int) -> RefusedError:
    return RefusedError(
        "the longest sequence does not fit in a micro-batch",
        got=f"{length} tokens",
        allowed=f"at most micro_batch_tokens {budget_tokens}",
        way_out="raise micro_batch_tokens or cut the lengths (max_tokens)",
    )

"""Assign sequences to replicas, pack shares into micro-batches of a token budget, and fill bins.

`pack` is best fit, longest first. `fill_bins` adds a lower bound on the number of bins (L2 of Martello and
Toth, 1990) and solves few sequences exactly by branch and bound: eight sequences of length 7 need eight
bins of 8, though ⌈56/8⌉ is 7.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models.lengths import LengthSample

__all__ = ["Bins", "Share", "busiest_shares", "fill_bins", "least_bins", "pack"]


@dataclass(frozen=True, slots=True)
class Share:
    """What one replica runs: `micro_batches` alike, each of `tokens` with ΣS² = `squares`."""

    micro_batches: int
    tokens: float
    squares: float

    @property
    def length(self) -> float:
        """ΣS²/ΣS, tokens: the length whose attention cost per token the micro-batch has."""
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
    """Return the shares that may be slowest when sequences are dealt back and forth by length.

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


EXACT_SEQUENCES = 24
_MOST_NODES = 50_000


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of lengths, tokens; no packing has fewer than `lower_bound` bins."""

    groups: tuple[tuple[int, ...], ...]
    lower_bound: int

    @property
    def optimal(self) -> bool:
        """Whether there cannot be fewer bins."""
        return len(self.groups) == self.lower_bound


def fill_bins(lengths: Sequence[int], capacity_tokens: int) -> Bins:
    """Pack sequences into few bins of a token capacity.

    Exactly up to 24 sequences; beyond that by best fit, longest first, with a bound on how few there can be.

    Parameters
    ----------
    lengths
        Lengths of the sequences, tokens.
    capacity_tokens
        The most tokens of a bin.

    Returns
    -------
    Bins
        The lengths in each bin, and a number of bins that no packing goes below.

    Raises
    ------
    RefusedError
        If a length or the capacity is below 1, or a sequence is longer than a bin.

    Examples
    --------
    >>> import libra_plan as lp
    >>> lp.fill_bins([7, 5, 3, 1], 8).groups
    ((7, 1), (5, 3))
    """
    if any(length < 1 for length in lengths) or capacity_tokens < 1:
        raise RefusedError(
            "lengths and capacity are whole numbers of tokens",
            got=f"capacity {capacity_tokens}, shortest length {min(lengths, default=0)}",
            allowed="at least 1",
        )
    found = tuple(tuple(group) for group in pack(lengths, capacity_tokens))
    bound = least_bins(lengths, capacity_tokens)
    if len(found) == bound or len(lengths) > EXACT_SEQUENCES:
        return Bins(found, bound)
    search = _Search(sorted(lengths, reverse=True), capacity_tokens, found, bound)
    search.place(0)
    return Bins(search.best, bound if search.nodes > _MOST_NODES else len(search.best))


def least_bins(lengths: Sequence[int], capacity_tokens: int) -> int:
    """Return a number of bins that no packing goes below (L2).

    For every threshold k ≤ C/2: sequences above C − k have bins of their own, those above C/2 too,
    and what of k to C/2 does not fit beside the latter needs further ones.
    """
    best = 0
    half = capacity_tokens / 2
    for threshold in {0, *(length for length in lengths if length <= half)}:
        alone = [length for length in lengths if length > capacity_tokens - threshold]
        large = [length for length in lengths if half < length <= capacity_tokens - threshold]
        small = sum(length for length in lengths if threshold <= length <= half)
        left = small - (len(large) * capacity_tokens - sum(large))
        best = max(best, len(alone) + len(large) + max(-(-left // capacity_tokens), 0))
    return best


class _Search:
    """Branch and bound: each sequence, longest first, into every bin of another room, or a new one."""

    def __init__(
        self, lengths: Sequence[int], capacity: int, found: tuple[tuple[int, ...], ...], bound: int
    ) -> None:
        self.lengths, self.capacity, self.best, self.bound = lengths, capacity, found, bound
        self.nodes = 0
        self._bins: list[list[int]] = []
        self._room: list[int] = []

    def place(self, at: int) -> None:
        """Place the sequences from `at` on, and keep the best packing."""
        self.nodes += 1
        if self.nodes > _MOST_NODES or len(self.best) == self.bound or len(self._bins) >= len(self.best):
            return
        if at == len(self.lengths):
            self.best = tuple(tuple(each) for each in self._bins)
            return
        length, tried = self.lengths[at], set[int]()
        for number, room in enumerate(self._room):
            if room >= length and room not in tried:
                tried.add(room)
                self._bins[number].append(length)
                self._room[number] -= length
                self.place(at + 1)
                self._room[number] += length
                self._bins[number].pop()
        if len(self._bins) + 1 < len(self.best):
            self._bins.append([length])
            self._room.append(self.capacity - length)
            self.place(at + 1)
            self._bins.pop()
            self._room.pop()

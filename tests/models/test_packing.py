"""Micro-batches: the budget is strict, every sequence is there once, no replica is idle."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import RefusedError
from libra_plan.models.lengths import LengthSample
from libra_plan.models.packing import busiest_shares, fill_bins, least_bins, pack

lists = st.lists(st.integers(1, 100), min_size=1, max_size=60)


def sample(lengths):
    return LengthSample(np.sort(np.array(lengths)))


def test_the_budget_is_strict():
    """Eight sequences of 7 with a cap of 8 need eight groups, not ⌈56/8⌉ = 7 (A084)."""
    assert [sum(group) for group in pack([7] * 8, 8)] == [7] * 8


@given(lists, st.integers(100, 400))
def test_packing_keeps_every_sequence_within_the_budget(lengths, budget):
    """Nothing is lost or doubled, no group is over, and at most one is half empty or less."""
    groups = pack(lengths, budget)
    assert sorted(length for group in groups for length in group) == sorted(lengths)
    assert max(map(sum, groups)) <= budget
    assert sum(2 * sum(group) <= budget for group in groups) <= 1


def test_budget_below_the_longest_sequence_is_refused():
    """Prompt 8,192 and response 32,768 do not fit in 16,384 tokens, and the message says so (A085)."""
    with pytest.raises(RefusedError) as refusal:
        busiest_shares(sample([1000, 40_960]), 1, 16_384)
    assert refusal.value.got == "40960 tokens"
    assert "16384" in refusal.value.allowed
    with pytest.raises(RefusedError):
        pack([1000, 40_960], 16_384)


def test_a_replica_without_work_is_refused():
    """Eight replicas for four sequences would mean micro-batches of nothing (A086)."""
    with pytest.raises(RefusedError, match="nothing to do"):
        busiest_shares(sample([10] * 4), 8, 100)


@given(lists, st.integers(1, 12), st.integers(100, 300))
def test_the_busiest_replica_has_at_least_the_mean(lengths, replicas, budget):
    """Its tokens lie between the mean and the mean plus the longest sequence."""
    replicas = min(replicas, len(lengths))
    shares = busiest_shares(sample(lengths), replicas, budget)
    tokens = max(share.micro_batches * share.tokens for share in shares)
    mean = sum(lengths) / replicas
    assert mean - 1e-6 <= tokens <= mean + max(lengths) + 1e-6
    assert all(share.micro_batches >= 1 and share.tokens <= budget + 1e-6 for share in shares)
    assert all(share.length <= max(lengths) + 1e-6 for share in shares)


def test_equal_sequences_share_evenly():
    """With equal lengths the split is exact and the effective length is the length."""
    (share,) = busiest_shares(sample([50] * 8), 4, 100)
    assert (share.micro_batches, share.tokens, share.length) == (1, 100, 50)


@cache
def fewest(lengths, capacity):
    """Count the fewest bins by trying every subset for the first one's bin."""
    if not lengths:
        return 0
    first, rest = lengths[0], lengths[1:]
    best = len(lengths)
    for chosen in range(2 ** len(rest)):
        beside = [length for at, length in enumerate(rest) if chosen >> at & 1]
        if first + sum(beside) <= capacity:
            left = tuple(length for at, length in enumerate(rest) if not chosen >> at & 1)
            best = min(best, 1 + fewest(left, capacity))
    return best


def test_a084_eight_sequences_of_seven_need_eight_bins_of_eight():
    """⌈56/8⌉ = 7 is a lower bound only, and a batch of 14 does not fit in 8."""
    bins = fill_bins([7] * 8, 8)
    assert (len(bins.groups), bins.lower_bound, bins.optimal) == (8, 8, True)


def test_a_packing_that_best_fit_misses_is_found():
    """Longest first fills 6+3 and is left with a third bin; two do."""
    lengths, capacity = [4, 4, 3, 3, 2, 2, 2], 10
    assert len(fill_bins(lengths, capacity).groups) == fewest(tuple(lengths), capacity)


LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=8)


@settings(deadline=None, max_examples=60)
@given(LENGTHS, st.integers(20, 40))
def test_few_sequences_are_packed_in_as_few_bins_as_there_can_be(lengths, capacity):
    """Against trying everything; the bound is never above it."""
    bins = fill_bins(lengths, capacity)
    assert len(bins.groups) == fewest(tuple(sorted(lengths)), capacity)
    assert bins.optimal
    assert least_bins(lengths, capacity) <= len(bins.groups)


@given(st.lists(st.integers(1, 100), min_size=25, max_size=120), st.integers(100, 300))
def test_many_sequences_keep_the_capacity_and_the_bound(lengths, capacity):
    """Every sequence is in one bin, no bin is over, and the number is near what is proven."""
    bins = fill_bins(lengths, capacity)
    assert Counter(length for group in bins.groups for length in group) == Counter(lengths)
    assert all(sum(group) <= capacity for group in bins.groups)
    assert bins.lower_bound <= len(bins.groups) <= bins.lower_bound * 1.5 + 1


def test_a085_a_sequence_longer_than_the_capacity_is_refused():
    """A budget of 16,384 tokens holds no sequence of 40,960."""
    with pytest.raises(RefusedError, match="40960"):
        fill_bins([8192 + 32768], 16384)
    with pytest.raises(RefusedError, match="at least 1"):
        fill_bins([0, 3], 8)

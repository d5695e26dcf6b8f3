"""Packing by length: strict capacity, a bound that holds, and the exact answer for few sequences."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import RefusedError
from libra_plan.models.packing import fill_bins, least_bins


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

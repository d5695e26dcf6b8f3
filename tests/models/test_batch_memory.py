"""How much memory a batch needs: bounds that hold for the sequences at hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.errors import RefusedError
from libra_plan.models.batch import cache_need, engine_need, profile_need
from libra_plan.models.fit import fit_profile
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import load_profile, shipped_folder


@given(st.lists(st.integers(1, 100), min_size=1, max_size=7), st.integers(1, 9))
def test_no_choice_of_sequences_needs_more_than_the_bound(lengths, number):
    """Whichever n of the lengths run at once, also the n longest."""
    need = cache_need(lengths, fixed_mib=50.0, per_token_mib=0.5)
    chosen = itertools.combinations(lengths, min(number, len(lengths)))
    assert all(50.0 + 0.5 * sum(each) <= need(number) for each in chosen)
    assert need(number) <= need(number + 1)


def test_beyond_the_known_lengths_all_are_as_long_as_the_longest():
    """What was not seen is not short."""
    need = cache_need([10, 4], fixed_mib=0.0, per_token_mib=1.0)
    assert [need(number) for number in (1, 2, 3, 4)] == [10, 14, 24, 34]
    with pytest.raises(RefusedError):
        cache_need([], fixed_mib=0.0, per_token_mib=1.0)


@pytest.fixture(scope="module")
def fits():
    found = {}
    for phase in ("train", "decode"):
        loaded = load_profile(shipped_folder() / f"h200-qwen2.5-0.5b-{phase}")
        found[phase] = fit_profile(loaded.file, loaded.points)
    return found


def test_a_profile_bounds_a_micro_batch_of_the_longest(fits):
    """Padded to the longest, it is at least the measured peak of that place."""
    need = profile_need(fits["train"], [300, *[1024] * 16], Layout())
    assert need(1) <= need(4) <= need(16)
    assert need(16) >= 17986.0  # points.csv: 16 sequences of 1024


def test_a_micro_batch_finds_the_gradients_of_an_earlier_one(fits):
    """Accumulation is what the recommendation is for: without them it would go one size too far."""
    alone = fits["train"].memory_mib(Query(16, 1024)).high
    gradients = 4 * 494_032_768 / 2**20
    outside = fits["train"].outside_allocator_mib or 0.0
    assert profile_need(fits["train"], [1024] * 16, Layout())(16) == pytest.approx(
        alone + gradients + outside
    )


def test_where_the_profile_refuses_nothing_fits(fits):
    """A size beyond what was measured is not recommended, however much memory there is."""
    assert math.isinf(profile_need(fits["train"], [1024], Layout())(100_000))
    assert profile_need(fits["decode"], [1024, 512], Layout())(2) < math.inf


def test_the_last_block_of_a_sequence_counts_whole():
    """An engine gives out its cache by blocks; 17 tokens take two of 16."""
    profile = load_profile(shipped_folder() / "aic-h100-llama-3.1-8b-trtllm-1.0.0rc3-bf16").file
    assert engine_need(profile, [17], Layout())(1) == engine_need(profile, [32], Layout())(1)
    assert engine_need(profile, [16], Layout())(1) < engine_need(profile, [17], Layout())(1)

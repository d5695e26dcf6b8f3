"""Stepping a batch: never above memory, a step a window, no swinging, and the optimizer's batch untouched."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import libra_plan
from libra_plan.errors import InputError, RefusedError
from libra_plan.models.batch import (
    cache_need,
    engine_need,
    profile_need,
    rollout_batch,
    token_batch,
    training_batch,
)
from libra_plan.models.fit import fit_profile
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import load_profile, shipped_folder


def need(size):
    return 1000.0 + 100.0 * size


def run(state, limits, need_mib=need, **more):
    """Take the advice of every window."""
    advice = []
    for limit in limits:
        advice.append(libra_plan.recommend_batch(state, need_mib=need_mib, limit_mib=limit, **more))
        state = advice[-1].state
    return advice


def test_a_larger_micro_batch_is_taken_a_step_at_a_time():
    """With room for everything it rises by one size after every third window."""
    sizes = [each.size for each in run(training_batch(16), [1e6] * 15)]
    assert sizes == [1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 16, 16, 16, 16]


def test_the_rank_s_batch_never_changes():
    """Micro-batch × accumulation is the same at every size, and each is at least 1 (A086)."""
    advice = run(training_batch(12), [1e6] * 20)
    assert {each.size * each.accumulation for each in advice} == {12}
    assert min(each.accumulation for each in advice) >= 1


def test_memory_that_is_gone_is_left_at_once():
    """What no longer fits is not kept for two more windows; the fall goes as far as it must."""
    state = training_batch(64, 32)
    (advice,) = run(state, [1500.0])
    assert (advice.size, advice.changed) == (4, True)
    assert advice.needed_mib <= 1500.0


LIMITS = st.lists(st.floats(1100.0, 9000.0), min_size=1, max_size=80)
STATES = st.one_of(
    st.builds(training_batch, st.sampled_from([1, 12, 48, 64])),
    st.builds(rollout_batch, st.sampled_from([1, 5, 40]), st.just(64)),
    st.builds(lambda: token_batch(3, 3, 60)),
)


@given(STATES, LIMITS)
def test_no_advice_is_above_the_memory_there_is(state, limits):
    """Whatever happens to free memory: bounded need ≤ limit, one change a window, one size up at most."""
    for limit in limits:
        before = state
        try:
            advice = libra_plan.recommend_batch(state, need_mib=need, limit_mib=limit)
        except RefusedError:
            assert need(state.sizes[0]) > limit
            break
        state = advice.state
        assert need(advice.size) <= limit
        assert state.place <= before.place + 1
        assert advice.changed == (state.place != before.place)
        assert (advice.size, advice.needed_mib) == (state.size, need(state.size))


@given(STATES, st.floats(1300.0, 9000.0), st.integers(0, 2**32))
def test_no_swinging_on_stationary_memory(state, mean, seed):
    """Free memory that wavers by less than the margin is never left again for a smaller size."""
    rng = random.Random(seed)
    limits = [mean * rng.uniform(0.955, 1.045) for _ in range(300)]  # 9.4 % apart, the margin is 10 %
    state = state if need(state.size) <= min(limits) else training_batch(64)
    sizes = [each.size for each in run(state, limits)]
    assert sizes == sorted(sizes)


def test_memory_that_swings_far_is_tried_ever_more_rarely():
    """Every fall doubles the patience: 2,000 windows of wild swings are a dozen changes, not 500."""
    limits = [9000.0 if window // 5 % 2 else 1500.0 for window in range(2000)]
    assert sum(each.changed for each in run(training_batch(64), limits)) <= 24


def test_concurrency_is_not_raised_beyond_what_waits():
    """Slots that nobody fills only take memory."""
    advice = run(rollout_batch(4, 64), [1e6] * 12, most_useful=7)
    assert max(each.size for each in advice) == 6
    assert advice[-1].accumulation is None


def test_what_cannot_be_known_is_refused():
    """NaN compares with nothing: it must not slip through as room."""
    for wrong in (float("nan"), 0.0, -1.0):
        with pytest.raises(InputError, match="above 0"):
            run(training_batch(4), [wrong])
    with pytest.raises(RefusedError, match="not even the smallest"):
        run(training_batch(4), [100.0])
    (advice,) = run(training_batch(4, 2), [2000.0], lambda size: 1500.0 if size == 1 else float("nan"))
    assert advice.size == 1


def test_a083_a_micro_batch_that_does_not_divide_the_batch_is_refused():
    """80 does not divide 256: names say sequences and samples, and the allowed sizes are listed."""
    with pytest.raises(InputError, match="micro_batch_sequences 80") as caught:
        training_batch(256, 80)
    assert "1, 2, 4, 8" in caught.value.allowed


def test_a085_a_token_budget_below_the_longest_sequence_is_refused():
    """16,384 tokens hold no sequence of 8,192 + 32,768."""
    with pytest.raises(InputError, match="40960"):
        token_batch(8192 + 32768, 16384, 65536)
    assert token_batch(1000, 1500, 8000).sizes == (1000, 1500, 2000, 3000, 4000, 6000, 8000)


def test_a086_a_rank_without_samples_is_refused():
    """A mini-batch of 0 after dividing by too many ranks is an error, not a size."""
    with pytest.raises(InputError, match="0 samples"):
        training_batch(0)
    with pytest.raises(InputError, match="at least one"):
        rollout_batch(0, 8)


@pytest.mark.parametrize("margin", [-0.5, float("nan"), float("inf")])
def test_a_margin_that_would_pass_the_memory_there_is_is_refused(margin):
    """Half less than needed was once taken for room."""
    for begin in (lambda: training_batch(8, margin=margin), lambda: rollout_batch(1, 8, margin=margin)):
        with pytest.raises(InputError, match="a margin is a share"):
            begin()


def test_sizes_of_any_batch_are_found_at_once():
    """A billion samples are a slip of the pen, and no reason to count to a billion."""
    assert training_batch(12).sizes == (1, 2, 3, 4, 6, 12)
    assert training_batch(16).sizes == (1, 2, 4, 8, 16)
    assert len(training_batch(10**9).sizes) == 100
    with pytest.raises(InputError, match="at least one token"):
        token_batch(0, 0, 10)


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

"""The luck of lengths against makespans computed one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.lengths import LengthSample, sample_lengths
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.luck import drawn_steps, luck_of
from libra_plan.models.rollout.makespan import Trajectories, makespan_s, pair_lengths
from libra_plan.models.rollout.schedule import _HEAP_ROWS, _by_slots
from libra_plan.models.rollout.streaming import continuous_s
from libra_plan.profiles.schema import LogNormal

H200_7B = DecodeCoefficients(7e-3, 1.5e-4, 3.6e-8, 0.05)
ROOMY = Admission(10_000, 1e12)


def step_of(count=96, sigma=1.0, number=2, seed=1):
    """Return orders as priced, and steps drawn anew from 16 times finer a sample."""
    law = LogNormal(median_tokens=2000, sigma=sigma, max_tokens=500_000)
    prompts, responses = LengthSample(np.full(count, 500)), sample_lengths(law, count)
    rng = np.random.default_rng(seed)
    orders = [pair_lengths(prompts, responses, rng) for _ in range(number)]
    return orders, drawn_steps(prompts, sample_lengths(law, 16 * count), count, rng)


def one_by_one(drawn, seconds):
    rows = zip(drawn.prompt_tokens, drawn.response_tokens, strict=True)
    return np.array([seconds(Trajectories(prompts, responses)) for prompts, responses in rows])


@settings(max_examples=30)
@given(
    st.integers(1, 20),
    st.sampled_from([ROOMY, Admission(8, 1e9), Admission(8, 60_000), Admission(64, 900_000)]),
)
def test_quantiles_are_those_of_makespans_one_by_one(replicas, limits):
    """The bootstrap is exact, with slots, with KV tokens, and whatever is left over in the last turn."""
    orders, drawn = step_of(sigma=0.6)
    drawn = Trajectories(drawn.prompt_tokens[:20], drawn.response_tokens[:20])
    median, high = luck_of(orders, drawn, H200_7B).makespan(limits, replicas)
    each = one_by_one(drawn, lambda work: makespan_s(work, H200_7B, limits, replicas))
    priced = np.mean([makespan_s(order, H200_7B, limits, replicas) for order in orders])
    assert (median, high) == pytest.approx(tuple(np.quantile(each, (0.5, 0.95)) / priced))


def test_steady_state_has_its_own_luck():
    """Replicas that never drain depend on the work of a step only, not on its longest response."""
    orders, drawn = step_of(256)
    limits = Admission(16, 1e12)
    steady = luck_of(orders, drawn, H200_7B).steady(limits, 4)
    each = one_by_one(drawn, lambda work: continuous_s(work, H200_7B, limits, 4))
    priced = np.mean([continuous_s(order, H200_7B, limits, 4) for order in orders])
    assert steady == pytest.approx(tuple(np.quantile(each, (0.5, 0.95)) / priced), rel=1e-6)


def test_a_heavier_tail_is_more_luck():
    """p95 over the price grows with sigma, from nearly 1 where all lengths are alike."""
    found = []
    for sigma in (0.05, 0.6, 1.2):
        orders, drawn = step_of(128, sigma)
        found.append(luck_of(orders, drawn, H200_7B).makespan(ROOMY, 8)[1])
    assert found == sorted(found)
    assert found[0] < 1.1
    assert found[2] > 1.3


def test_prefill_counts_as_work():
    """Seconds of prefill are the same whatever the luck, so they narrow the ratio."""
    orders, drawn = step_of()
    plain = luck_of(orders, drawn, H200_7B).makespan(ROOMY, 4)
    slow = luck_of(orders, drawn, H200_7B, lambda work: np.full(work.prompt_tokens.shape, 100.0))
    assert slow.makespan(ROOMY, 4)[1] < plain[1]


def test_large_steps_are_drawn_less_often():
    """With thousands of trajectories luck evens out within a step; the arrays stay small."""
    lengths = LengthSample(np.array([1, 2, 3]))
    rng = np.random.default_rng(0)
    assert drawn_steps(lengths, lengths, 100, rng).response_tokens.shape == (200, 100)
    assert drawn_steps(lengths, lengths, 4096, rng).response_tokens.shape == (64, 4096)


def test_a_draw_longer_than_the_cache_takes_all_of_it():
    """A law's far tail may pass what admission was made for; its draws still end."""
    orders, drawn = step_of(32, 1.2)
    limits = Admission(8, float(orders[0].final_context.max()))
    assert drawn.final_context.max() > limits.tokens
    assert luck_of(orders, drawn, H200_7B).makespan(limits, 2)[1] > 1


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.integers(1, 8), st.integers(1, 20))
def test_few_schedules_and_many_are_the_same(lengths, slots, copies):
    """One by one with a heap or side by side in arrays: the way is chosen by speed alone."""
    turns = np.array(lengths, dtype=float)[:, None]
    few = _by_slots(turns, min(slots, len(turns)))
    many = _by_slots(np.repeat(turns, _HEAP_ROWS + copies, axis=1), min(slots, len(turns)))
    assert (many == few[0]).all()


def test_many_trajectories_are_drawn_less_often():
    """Luck evens out in a large step, and 64 draws of 100,000 lengths took half a gigabyte."""
    shapes = {
        count: drawn_steps(
            LengthSample(np.full(4, 500)), LengthSample(np.arange(1, 5)), count, np.random.default_rng(0)
        ).response_tokens.shape
        for count in (64, 512, 8192, 100_000)
    }
    assert shapes == {64: (200, 64), 512: (64, 512), 8192: (64, 8192), 100_000: (20, 100_000)}

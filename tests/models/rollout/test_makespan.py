"""Rollout times against step-by-step simulation, and the laws they obey."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stepwise import stepwise_s, timewise_s

from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.lengths import LengthSample, sample_lengths
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.makespan import (
    Trajectories,
    drawn_waits_s,
    makespan_s,
    makespan_with_waits,
    pair_lengths,
    simulated_turns,
)
from libra_plan.models.rollout.schedule import decode_steps
from libra_plan.models.rollout.streaming import continuous_s
from libra_plan.profiles.schema import LogNormal

H200_7B = DecodeCoefficients(7e-3, 1.5e-4, 3.6e-8, 0.05)
ROOMY = Admission(10_000, 1e12)

lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=24)
coefficients = st.builds(
    DecodeCoefficients, st.floats(0, 1), st.floats(0, 0.1), st.floats(0, 0.01), st.just(0.05)
)


def work_of(pairs, turns=1, wait_s=0.0):
    prompts, responses = (np.array(side) for side in zip(*pairs, strict=True))
    return Trajectories(prompts, responses, turns, wait_s)


@given(lengths, coefficients)
def test_closed_form_is_exact_when_all_start_at_once(pairs, fit):
    """T = a·Lmax + b·ΣL + k·ΣL(P + L/2) is what running every step gives."""
    expected = stepwise_s(*zip(*pairs, strict=True), fit, len(pairs), 1e12)
    assert makespan_s(work_of(pairs), fit, ROOMY) == pytest.approx(expected, rel=1e-9)


@given(lengths, coefficients, st.integers(1, 8), st.integers(120, 400))
def test_limited_admission_matches_step_by_step(pairs, fit, slots, tokens):
    """With slots and a token budget the steps are those of in-order list scheduling."""
    expected = stepwise_s(*zip(*pairs, strict=True), fit, slots, tokens)
    found = makespan_s(work_of(pairs), fit, Admission(slots, tokens))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(lengths, coefficients, st.integers(1, 5))
def test_replicas_take_turns_and_the_slowest_counts(pairs, fit, replicas):
    """Trajectory i goes to replica i mod R; the makespan is the largest of their own times."""
    work = work_of(pairs)
    replicas = min(replicas, len(pairs))
    each = [makespan_s(work.share(at, replicas), fit, ROOMY) for at in range(replicas)]
    assert makespan_s(work, fit, ROOMY, replicas) == pytest.approx(max(each), rel=1e-9, abs=1e-12)


@given(lengths, coefficients, st.integers(1, 6), st.integers(2, 5))
def test_no_number_of_replicas_is_slower_than_one_when_all_fit(pairs, fit, first, factor):
    """What holds exactly: one replica is never faster, as its work includes any share.

    R against R + 1 replicas can go either way for one order: it is luck who meets the longest.
    """
    work = work_of(pairs)
    replicas = min(first * factor, len(pairs))
    assert makespan_s(work, fit, ROOMY, replicas) <= makespan_s(work, fit, ROOMY, 1) * (1 + 1e-9)


@given(lengths, coefficients, st.integers(1, 8))
def test_a_multiple_of_the_replicas_is_never_slower_when_all_fit(pairs, fit, factor):
    """Dealing round-robin to a multiple of R cuts every share into parts, so none grows."""
    work = work_of(pairs)
    for replicas in range(1, len(pairs) // factor + 1):
        more = makespan_s(work, fit, ROOMY, replicas * factor)
        assert more <= makespan_s(work, fit, ROOMY, replicas) * (1 + 1e-9)


@given(lengths, coefficients, st.integers(0, 23), st.integers(1, 50), st.integers(1, 6))
def test_a_longer_response_is_never_faster_when_only_slots_bind(pairs, fit, at, more, slots):
    """A growing response delays, by list scheduling in order, no start to an earlier time."""
    longer = list(pairs)
    prompt, response = longer[at % len(pairs)]
    longer[at % len(pairs)] = (prompt, response + more)
    limits = Admission(slots, 1e12)
    assert makespan_s(work_of(longer), fit, limits) >= makespan_s(work_of(pairs), fit, limits) * (1 - 1e-9)


@given(lengths, st.integers(1, 8))
def test_steps_lie_between_the_bounds_of_list_scheduling(pairs, slots):
    """Steps ≥ max(longest, Σ/slots) and, with slots alone, ≤ Σ/slots + longest (Graham)."""
    work = work_of(pairs)
    steps = decode_steps(work.response_tokens.tolist(), work.final_context.tolist(), Admission(slots, 1e12))
    total, longest = int(work.response_tokens.sum()), int(work.response_tokens.max())
    assert max(longest, total / slots) <= steps <= total / slots + longest


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(4, 40)), min_size=1, max_size=6),
    st.integers(1, 6),
    st.integers(1, 3),
    st.floats(0.01, 0.5),
)
def test_tool_waits_match_time_slices(pairs, slots, turns, wait_s):
    """The event simulation agrees with letting time pass in slices far shorter than a step."""
    fit = DecodeCoefficients(0.02, 0.002, 1e-5, 0.05)
    expected = timewise_s(*zip(*pairs, strict=True), fit, slots, 1e9, turns, wait_s)
    found = makespan_s(work_of(pairs, turns, wait_s), fit, Admission(slots, 1e9))
    # a slice is 1 ms; every turn end and wake-up may be late by one
    assert found == pytest.approx(expected, abs=2e-3 * (2 * turns + 1) * len(pairs))


@given(lengths, st.integers(1, 4), st.floats(0.001, 5))
def test_tool_waits_add_at_most_their_own_time(pairs, turns, wait_s):
    """With all admitted, T₀ ≤ T ≤ T₀ + turns·wait: others compute while one waits."""
    plain = makespan_s(work_of(pairs), H200_7B, ROOMY)
    waiting = makespan_s(work_of(pairs, turns, wait_s), H200_7B, ROOMY)
    assert plain * (1 - 1e-9) <= waiting <= (plain + turns * wait_s) * (1 + 1e-9)


@given(lengths, st.integers(1, 3), st.floats(0.001, 5), st.integers(1, 5), st.integers(1, 4))
def test_replicas_that_are_not_simulated_are_not_the_slowest(pairs, turns, wait_s, replicas, slots):
    """Leaving out replicas by their upper bound gives the same maximum as simulating each."""
    work = work_of(pairs, turns, wait_s)
    replicas = min(replicas, len(pairs))
    prefill = np.linspace(0.0, 1.0, len(pairs))
    each = [
        makespan_s(work.share(at, replicas), H200_7B, Admission(slots, 1e9), 1, prefill[at::replicas])
        for at in range(replicas)
    ]
    found = makespan_s(work, H200_7B, Admission(slots, 1e9), replicas, prefill)
    assert found == pytest.approx(max(each), rel=1e-9)


def test_one_trajectory_waits_in_full():
    """Alone, nothing hides a wait."""
    plain = makespan_s(work_of([(10, 100)]), H200_7B, ROOMY)
    assert makespan_s(work_of([(10, 100)], 5, 2.0), H200_7B, ROOMY) == pytest.approx(plain + 10.0)


def test_many_turns_are_merged_without_losing_waits():
    """Beyond the event budget turns are merged; the lone longest trajectory still waits them all."""
    pairs = [(10, 50)] * 400 + [(10, 5000)]
    plain = makespan_s(work_of(pairs), H200_7B, ROOMY)
    found = makespan_s(work_of(pairs, 40, 1.0), H200_7B, ROOMY)
    assert plain < found <= plain + 40.0 + 1e-9


def test_the_tail_and_not_the_mean_sets_the_time():
    """95 % of 2k and 5 % of 30k: the mean length understates the step by far (A037)."""
    tail = LengthSample(np.array([2000] * 95 + [30_000] * 5))
    mean = LengthSample(np.full(100, 3400))
    prompts = LengthSample(np.full(100, 500))
    times = [
        makespan_s(pair_lengths(prompts, each, np.random.default_rng(0)), H200_7B, ROOMY, 4)
        for each in (tail, mean)
    ]
    assert times[0] > 3 * times[1]


def test_serving_profiles_bring_their_prefill():
    """p·B·(P/L) in each of L steps adds up to p·P per trajectory, whatever else runs."""
    fit = DecodeCoefficients(0.01, 0.0, 0.0, 0.05, per_prefill_s=0.001)
    assert makespan_s(work_of([(100, 10), (50, 10)]), fit, ROOMY) == pytest.approx(0.1 + 0.15)
    waits = makespan_s(work_of([(100, 10), (50, 10)], 1, 1.0), fit, ROOMY)
    assert waits == pytest.approx(0.1 + 0.15 + 1.0)


def test_a_trajectory_that_cannot_fit_is_a_fault_of_the_caller():
    """Admission must have been refused before; simulating it would never end."""
    with pytest.raises(ValueError, match="does not fit"):
        makespan_s(work_of([(10, 100)]), H200_7B, Admission(4, 50))


def test_steady_state_is_faster_than_draining_each_step():
    """Without waiting for the tail, a step takes total work ÷ steady rate (async coupling)."""
    responses = sample_lengths(LogNormal(median_tokens=2000, sigma=1.0, max_tokens=30_000), 512)
    work = pair_lengths(LengthSample(np.full(512, 500)), responses, np.random.default_rng(0))
    limits = Admission(64, 1e9)
    steady = continuous_s(work, H200_7B, limits, 4)
    assert steady < makespan_s(work, H200_7B, limits, 4)
    contexts = work.response_tokens * (
        H200_7B.per_sequence_s + H200_7B.per_token_s * (500 + work.response_tokens / 2)
    )
    by_hand = (H200_7B.fixed_s * work.response_tokens.sum() / 64 + contexts.sum()) / 4
    assert steady == pytest.approx(by_hand)


def test_steady_state_waits_obey_the_interactive_law():
    """With waits, slots = busy + waiting: N = rate·(L·t + wait), with t the step of the busy ones."""
    work = work_of([(100, 200)] * 64, 4, 3.0)
    seconds = continuous_s(work, H200_7B, Admission(16, 1e9))
    rate = 64 / seconds
    wait = 12.0
    busy = 16 - rate * wait
    step = H200_7B.fixed_s + busy * (H200_7B.per_sequence_s + H200_7B.per_token_s * 200)
    assert rate * (200 * step + wait) == pytest.approx(16)


STEP = DecodeCoefficients(7e-3, 1.5e-4, 3.6e-8, 0.05)
TRAJECTORY = st.tuples(st.integers(1, 500), st.integers(1, 3000))


def plain(prompts, responses, admission, turns, wait_s):
    """Advance from event to event over sets, with nothing kept sorted."""
    contexts, left = [float(each) for each in prompts], [turns] * len(prompts)
    parts = [length / turns for length in responses]
    queue, running, waiting, now = list(range(len(prompts))), {}, {}, 0.0

    def held():
        return {*running, *waiting}

    def admit():
        while queue and len(held()) < admission.sequences:
            reserved = sum(prompts[each] + responses[each] for each in (*held(), queue[0]))
            if reserved > admission.tokens:
                return
            first = queue.pop(0)
            running[first] = parts[first]

    admit()
    while running or waiting:
        wakes = min(waiting.values(), default=np.inf)
        steps = min(running.values(), default=np.inf)
        rate = STEP.fixed_s + STEP.per_sequence_s * len(running)
        rate += STEP.per_token_s * sum(contexts[each] for each in running)
        growth = STEP.per_token_s * len(running)
        ends = now + steps * (rate + growth * steps / 2) if running else np.inf
        if ends > wakes:
            spare = max(wakes - now, 0.0)
            steps = 2 * spare / (rate + np.sqrt(rate * rate + 2 * growth * spare))
        now = max(now, min(ends, wakes))
        for each in running:
            contexts[each] += steps
            running[each] -= steps
        if ends <= wakes:
            done = min(running, key=lambda each: (running[each], each))
            del running[done]
            left[done] -= 1
            waiting[done] = now + wait_s
        else:
            woken = min(waiting, key=lambda each: waiting[each])
            del waiting[woken]
            if left[woken]:
                running[woken] = parts[woken]
            admit()
    return now


@settings(max_examples=60, deadline=None)
@given(
    st.lists(TRAJECTORY, min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.7, 40.0]),
    st.sampled_from([3500, 6000, 10**9]),
)
def test_the_fast_loop_gives_what_the_plain_one_gives(sizes, slots, turns, wait_s, tokens):
    """Speed may not change who is admitted when, nor a second of the makespan."""
    prompts, responses = np.array(sizes).T
    admission = Admission(slots, tokens)
    fast = makespan_with_waits(prompts, responses, STEP, admission, np.full((len(prompts), turns), wait_s))
    slow = plain(prompts.tolist(), responses.tolist(), admission, turns, wait_s)
    assert fast == pytest.approx(slow, rel=1e-6)


def test_drawn_waits_keep_their_mean_and_spread_when_turns_are_merged():
    """Merging turns is for speed: neither the mean of a trajectory's waits nor its variance may change."""
    for trajectories, turns in ((4000, 20), (60, 20)):
        drawn = drawn_waits_s(trajectories, turns, 3.0, 1.0)
        sums = drawn.sum(axis=1)
        tolerance = 4.0 / math.sqrt(trajectories)
        assert drawn.shape == (trajectories, simulated_turns(trajectories, turns))
        assert sums.mean() == pytest.approx(60.0, rel=tolerance)
        assert sums.std() == pytest.approx(3.0 * math.sqrt(20 * math.expm1(1.0)), rel=2 * tolerance)
    assert (drawn_waits_s(5, 3, 2.0, 0.0) == 2.0).all()


def test_a_heavy_tail_of_waits_is_waited_for():
    """The step ends with the trajectory whose tools took longest, not with the mean one."""
    work = Trajectories(np.full(64, 200), np.full(64, 500), 10, 5.0)
    heavy = replace(work, tool_wait_sigma=1.5)
    roomy = Admission(64, 1e9)
    even, tail = makespan_s(work, STEP, roomy), makespan_s(heavy, STEP, roomy)
    longest = drawn_waits_s(64, 10, 5.0, 1.5).sum(axis=1).max()
    assert longest > 1.5 * 50.0
    assert longest < tail < even + longest - 50.0 + 1.0

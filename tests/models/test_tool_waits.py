"""The event simulation of tool waits against a plain one that looks for the next event every time."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.models.query import DecodeCoefficients
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.makespan import (
    Trajectories,
    drawn_waits_s,
    makespan_s,
    makespan_with_waits,
    simulated_turns,
)

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

"""Mixed layouts over the length-sorted trajectories against trying everything."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import RefusedError
from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.lengths import LengthSample, sample_lengths
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Origin
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.makespan import Trajectories, makespan_s, pair_lengths
from libra_plan.models.rollout.mixed import ReplicaKind, mixed_rollout
from libra_plan.profiles.schema import LogNormal

ROOMY = Admission(10_000, 1e12)

pairs = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=7)


def kinds_of(base=(7e-3, 1.5e-4, 3.6e-8), admission=ROOMY, sizes=(1, 2, 4), gain=1.5):
    return [
        ReplicaKind(
            Layout(tp=size), DecodeCoefficients(*(c / gain ** math.log2(size) for c in base), 0.05), admission
        )
        for size in sizes
    ]


def work_of(rows, turns=1, wait_s=0.0):
    prompts, responses = (np.array(side) for side in zip(*rows, strict=True))
    return Trajectories(prompts, responses, turns, wait_s)


def tailed(count, sigma=1.0, seed=0):
    law = LogNormal(median_tokens=2000, sigma=sigma, max_tokens=31_000)
    prompts = LengthSample(np.full(count, 500))
    return pair_lengths(prompts, sample_lengths(law, count), np.random.default_rng(seed))


def everything_s(work, kinds, gpus):
    """Try every way to cut the sorted trajectories into ranges, with every kind for every range."""
    order = np.argsort(-work.response_tokens, kind="stable")
    count, best = len(work), math.inf
    for cuts in range(count):
        for inner in itertools.combinations(range(1, count), cuts):
            edges = [0, *inner, count]
            for chosen in itertools.product(kinds, repeat=len(edges) - 1):
                if sum(kind.layout.gpus_per_replica for kind in chosen) > gpus:
                    continue
                best = min(best, max(
                    range_s(work, order[i:j], kind)
                    for kind, (i, j) in zip(chosen, itertools.pairwise(edges), strict=True)
                ))  # fmt: skip
    return best


def range_s(work, at, kind):
    part = Trajectories(work.prompt_tokens[at], work.response_tokens[at])
    if part.final_context.max() > kind.admission.tokens:
        return math.inf
    return makespan_s(part, kind.coefficients, kind.admission)


@settings(deadline=None)  # a busy machine is no mistake
@given(
    pairs, st.integers(1, 7), st.tuples(*[st.floats(1e-3, 1)] * 3), st.integers(1, 3), st.integers(120, 300)
)
def test_no_mix_of_ranges_is_faster(rows, gpus, base, slots, tokens):
    """On cases small enough to try everything the answer is the best there is, limits included."""
    kinds = kinds_of(base, Admission(slots, tokens), (1, 2))
    work = work_of(rows)
    found = mixed_rollout(work, kinds, gpus)
    assert found.makespan_s.value <= everything_s(work, kinds, gpus) * (1 + 2e-6)
    assert found.gpus <= gpus


@settings(deadline=None)  # a busy machine is no mistake
@given(st.integers(2, 64), st.sampled_from([1, 2, 4, 8, 16]), st.floats(0.2, 1.4), st.integers(0, 9))
def test_a_mix_is_never_slower_than_one_layout(count, gpus, sigma, seed):
    """Every uniform layout is among the choices, whether dealt by rank or cut into ranges."""
    work = tailed(count, sigma, seed)
    kinds = kinds_of(admission=Admission(16, 60_000))
    mixed = mixed_rollout(work, kinds, gpus)
    for kind in kinds:
        if kind.layout.gpus_per_replica <= gpus:
            assert mixed.makespan_s.value <= mixed_rollout(work, [kind], gpus).makespan_s.value * (1 + 2e-6)
    assert mixed.uniform_s is not None
    assert mixed.makespan_s.value <= mixed.uniform_s * (1 + 1e-12)


def test_ranges_cover_every_position_once_and_times_are_their_own():
    """The replicas are a partition of the ranked trajectories, each with the time it really takes."""
    work = tailed(200)
    mixed = mixed_rollout(work, kinds_of(sizes=(1, 2, 4, 8)), 16)
    served = sorted(p for each in mixed.replicas for p in range(each.start, each.stop, each.stride))
    assert served == list(range(200))
    order = np.array(mixed.order)
    kinds = {kind.layout: kind for kind in kinds_of(sizes=(1, 2, 4, 8))}
    for each in mixed.replicas:
        at = order[each.start : each.stop : each.stride]
        assert each.time_s == pytest.approx(range_s(work, at, kinds[each.layout]))
    assert mixed.makespan_s.value == max(each.time_s for each in mixed.replicas)
    assert (np.diff(work.response_tokens[order]) <= 0).all()


def test_long_trajectories_get_the_larger_replicas():
    """With a heavy tail the step is far shorter than under the best single layout."""
    mixed = mixed_rollout(tailed(256, 1.2), kinds_of(sizes=(1, 2, 4, 8)), 32)
    sizes = [each.layout.tp for each in mixed.replicas]
    assert sizes[0] == max(sizes) > min(sizes[-2:])
    assert mixed.makespan_s.value < 0.9 * mixed.uniform_s


def test_a_small_replica_serves_what_it_can_hold():
    """A layout without room for the longest context still takes the short ones."""
    small = ReplicaKind(Layout(), DecodeCoefficients(7e-3, 1.5e-4, 0.0, 0.05), Admission(64, 2_000))
    large = ReplicaKind(Layout(tp=4), DecodeCoefficients(3e-3, 1e-4, 0.0, 0.05), Admission(64, 100_000))
    work = work_of([(100, 20_000)] + [(100, 500)] * 40)
    mixed = mixed_rollout(work, [small, large], 6)
    assert mixed.uniform == Layout(tp=4)
    assert {each.layout for each in mixed.replicas} == {Layout(), Layout(tp=4)}
    assert all(each.start > 0 for each in mixed.replicas if each.layout == Layout())


def test_what_no_layout_can_hold_is_refused_with_the_figures():
    """A trajectory too long for every cache would never end."""
    with pytest.raises(RefusedError, match="longest context 20100 tokens"):
        mixed_rollout(work_of([(100, 20_000)]), kinds_of(admission=Admission(8, 10_000)), 4)
    with pytest.raises(RefusedError, match="1 GPUs"):
        mixed_rollout(work_of([(100, 100)]), kinds_of(sizes=(2,)), 1)


def test_a_poor_predictor_widens_only_the_upper_bound():
    """Ranges rest on ranks: the worse these are, the longer the step may take."""
    work, kinds = tailed(128), kinds_of()
    sure = mixed_rollout(work, kinds, 16).makespan_s
    some, more = (
        mixed_rollout(work, kinds, 16, ranking_error=error, rng=np.random.default_rng(1)).makespan_s
        for error in (0.2, 1.0)
    )
    assert sure.value == some.value == more.value
    assert sure.low == more.low
    assert sure.high < some.high < more.high
    with pytest.raises(ValueError, match="rng"):
        mixed_rollout(work, kinds, 16, ranking_error=0.5)


def test_misranked_trajectories_go_where_they_fit():
    """One that does not fit where its rank sent it is served by the roomiest replica, not lost."""
    small = ReplicaKind(Layout(), DecodeCoefficients(7e-3, 1.5e-4, 0.0, 0.05), Admission(64, 2_000))
    large = ReplicaKind(Layout(tp=4), DecodeCoefficients(3e-3, 1e-4, 0.0, 0.05), Admission(64, 100_000))
    work = work_of([(100, 20_000)] + [(100, 500)] * 40)
    found = mixed_rollout(work, [small, large], 6, ranking_error=3.0, rng=np.random.default_rng(0))
    assert math.isfinite(found.makespan_s.high)


def test_prefill_and_tool_waits_count():
    """Prefill adds to its own trajectory's replica; waits are simulated for what was chosen."""
    work = work_of([(10, 100), (10, 50)])
    kind = kinds_of(sizes=(1,))[0]
    with_prefill = ReplicaKind(kind.layout, kind.coefficients, kind.admission, np.array([0.0, 9.0]))
    plain = mixed_rollout(work, [kind], 2)
    slow = mixed_rollout(work, [with_prefill], 2)
    assert slow.makespan_s.value == pytest.approx(9.0 + min(each.time_s for each in plain.replicas))
    waits = mixed_rollout(work_of([(10, 100), (10, 50)], 5, 2.0), [kind], 2)
    assert waits.makespan_s.value == pytest.approx(plain.makespan_s.value + 10.0)


def test_the_weakest_origin_of_the_layouts_used_is_told():
    """A replica priced by a prior makes the step's price an assumption."""
    work = tailed(64, 1.2)
    kinds = [replace(kind, origin=Origin.ASSUMED) if kind.layout.tp > 1 else kind for kind in kinds_of()]
    assert mixed_rollout(work, kinds, 1).makespan_s.origin is Origin.INTERPOLATED
    assert mixed_rollout(work, kinds, 16).makespan_s.origin is Origin.ASSUMED

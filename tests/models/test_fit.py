"""Many questions at once against one by one."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache

import msgspec
import numpy as np
import pytest
from affine_profile import profile_file
from fitting import GRID, cache_law, decode_law, fitted, points_of, shipped
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import RefusedError
from libra_plan.models import fit as fit_module
from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.query import Query
from libra_plan.profiles.schema import Point

DECODE = fitted()
REAL = shipped("7b-decode")


def test_a_measured_place_is_returned_exactly():
    """A planner must never disagree with what was measured."""
    fit = REAL.by_layout[Layout()]
    for sample in fit.time.samples:
        answer = REAL.time_s(Query(sample.batch, sample.length))
        assert (answer.value, answer.origin) == (sample.value, Origin.MEASURED)
        assert answer.rows == sample.rows
    for sample in fit.memory.samples:
        assert REAL.memory_mib(Query(sample.batch, sample.length)).value == sample.value


@given(st.floats(1, 64), st.floats(512, 8192))
@settings(max_examples=60, deadline=None)
def test_a_law_without_noise_is_recovered_everywhere_inside(batch, length):
    """Points of the physical form must be interpolated by it, not by a wiggle through them."""
    answer = DECODE.time_s(Query(batch, length))
    assert answer.value == pytest.approx(decode_law(batch, length), rel=2e-3)
    assert answer.origin in (Origin.MEASURED, Origin.INTERPOLATED)
    assert answer.low <= decode_law(batch, length) <= answer.high
    assert DECODE.memory_mib(Query(batch, length)).value == pytest.approx(cache_law(batch, length), rel=2e-3)


def test_one_octave_outside_is_extrapolated_with_wider_bounds():
    """A little beyond the points the answer is still useful, but must say so."""
    inside, outside = DECODE.time_s(Query(48, 2000)), DECODE.time_s(Query(128, 2048))
    assert outside.origin is Origin.EXTRAPOLATED
    assert outside.high / outside.value > inside.high / inside.value
    assert outside.high / outside.value >= 1.15 - 1e-9
    assert outside.value == pytest.approx(decode_law(128, 2048), rel=0.01)


@pytest.mark.parametrize(
    "query", [Query(129, 2048), Query(1, 255), Query(128, 16384), Query(0.4, 2048), Query(1, 40000)]
)
def test_further_outside_is_refused_unless_priors_are_allowed(query):
    """Refuse rather than extrapolate; the message has to say what is allowed and the way out."""
    with pytest.raises(RefusedError) as refused:
        DECODE.time_s(query)
    error = refused.value
    assert all([error.what, error.got, error.allowed, error.way_out])
    assert "batch 1 to 64" in error.allowed
    assert "--allow-prior" in error.way_out
    guess = DECODE.time_s(query, allow_prior=True)
    assert guess.origin is Origin.ASSUMED
    assert guess.high / guess.value > 1.15


def test_an_unseen_layout_is_refused_and_with_a_prior_never_twice_as_fast():
    """Tensor parallelism was not measured, and it never doubles the speed."""
    with pytest.raises(RefusedError, match="no time was measured for this layout; got tp2"):
        DECODE.time_s(Query(8, 2048, layout=Layout(tp=2)))
    one, two = (
        DECODE.time_s(Query(8, 2048)),
        DECODE.time_s(Query(8, 2048, layout=Layout(tp=2)), allow_prior=True),
    )
    assert two.origin is Origin.ASSUMED
    assert one.value / 2 < two.value < one.value
    assert two.low < two.value < two.high
    with pytest.raises(RefusedError, match="cp2"):
        DECODE.time_s(Query(8, 2048, layout=Layout(cp=2)), allow_prior=True)


def test_fewer_than_six_places_are_refused():
    """Four points can miss by more than 100 %, so they must not look like a model."""
    few = fitted(points=points_of(grid=GRID[:5]))
    assert few.layouts == ()
    with pytest.raises(RefusedError, match="too few points") as refused:
        few.time_s(Query(1, 600))
    assert refused.value.got == "5 for tp1"


def test_a_question_without_its_length_is_refused():
    """A missing length must not be taken as any number."""
    with pytest.raises(RefusedError, match="incomplete"):
        DECODE.time_s(Query(4))
    with pytest.raises(RefusedError, match="incomplete"):
        DECODE.time_s(Query(4, math.nan))


def test_nothing_at_or_beyond_an_out_of_memory_row_is_feasible():
    """What was tried and failed, and all that is larger, must not be planned."""
    oom = Point(status="oom", batch_sequences=32, seq_len_tokens=4096)
    model = fitted(points=[*points_of(), oom])
    for query in (Query(32, 4096), Query(33, 4096), Query(48, 5000)):
        with pytest.raises(RefusedError, match="ran out of memory"):
            model.memory_mib(query)
        with pytest.raises(RefusedError, match="ran out of memory"):
            model.time_s(query, allow_prior=True)
    assert model.memory_mib(Query(31, 4096)).value > 0
    assert model.max_batch(4096, 1e9) == 31


@given(st.floats(1e-3, 64), st.floats(1, 8192))
@settings(max_examples=60, deadline=None)
def test_memory_is_never_extrapolated_downward(batch, length):
    """Below the smallest measured point nothing says that less memory is enough."""
    least = min(sample.value for sample in REAL.by_layout[Layout()].memory.samples)
    answer = REAL.memory_mib(Query(batch, length))
    assert answer.low >= least * 0.99
    assert answer.value >= least


def test_a_smaller_batch_than_any_measured_has_a_memory_but_not_a_time():
    """A measured larger run bounds the memory of a smaller one; it says little about its time."""
    model = fitted(points=points_of(grid=[(b, s) for b in (16, 32, 64) for s in (512, 8192)]))
    assert model.memory_mib(Query(1, 512)).value == cache_law(16, 512)
    with pytest.raises(RefusedError):
        model.time_s(Query(1, 512))


def test_memory_that_was_not_measured_is_refused():
    """Unknown is not zero."""
    model = fitted(points=points_of(memory=None))
    with pytest.raises(RefusedError, match="no memory was measured"):
        model.memory_mib(Query(4, 2048))


@given(st.floats(512, 8192), st.floats(18500, 60000))
@settings(max_examples=40, deadline=None)
def test_the_largest_batch_fits_and_the_next_does_not(length, memory):
    """Concurrency is set from this: one sequence too many runs out of memory."""
    batch = DECODE.max_batch(length, memory)
    assert DECODE.memory_mib(Query(batch, length)).high <= memory
    beyond_domain = batch + 1 > 64
    assert beyond_domain or DECODE.memory_mib(Query(batch + 1, length)).high > memory


def test_a_role_that_does_not_fit_at_all_is_refused_with_what_it_needs():
    """The user has to learn how much is missing."""
    with pytest.raises(RefusedError, match="does not fit in memory") as refused:
        DECODE.max_batch(2048, 1000)
    assert "MiB" in refused.value.allowed


def test_static_memory_lies_between_the_weights_and_the_bound_of_the_smallest_peak():
    """A paused role keeps at least its weights and at most what its smallest run takes, another run's too."""
    for name in ("7b-decode", "7b-score", "7b-train", "0.5b-train"):
        model = shipped(name)
        static = model.static_mib()
        smallest = min(model.by_layout[Layout()].memory.samples, key=lambda sample: sample.value)
        assert static.low <= static.value <= smallest.value
        assert static.high == model.memory_mib(Query(smallest.batch, smallest.length)).high
    assert shipped("7b-decode").static_mib().low == pytest.approx(2 * 7615616512 / 2**20)


def test_decode_coefficients_reproduce_the_measured_steps_within_their_error():
    """Closed-form rollout times are only as good as the affine step."""
    coefficients = REAL.decode_coefficients()
    errors = [
        abs(
            (
                coefficients.fixed_s
                + coefficients.per_sequence_s * sample.batch
                + coefficients.per_token_s * sample.batch * sample.length
            )
            / sample.value
            - 1
        )
        for sample in REAL.by_layout[Layout()].time.samples
    ]
    assert sum(error <= coefficients.error + 1e-12 for error in errors) >= 0.85 * len(errors)
    assert coefficients.error < 0.08
    faster = REAL.decode_coefficients(Layout(tp=2), allow_prior=True)
    assert coefficients.fixed_s / 2 < faster.fixed_s < coefficients.fixed_s


def test_a_bad_row_does_not_bend_the_fit():
    """Published tables hold impossible rows; the rest of the table must still be usable."""
    points = points_of(grid=[(b, s) for b in (1, 2, 4, 8, 16, 32, 64) for s in (512, 2048, 8192)])
    bad = [
        Point(batch_sequences=p.batch_sequences, seq_len_tokens=p.seq_len_tokens, time_s=p.time_s * 4)
        if (p.batch_sequences, p.seq_len_tokens) == (8, 2048)
        else p
        for p in points
    ]
    answer = fitted(points=bad).time_s(Query(40, 6000))
    assert answer.value == pytest.approx(decode_law(40, 6000), rel=0.03)


def test_repeated_rows_of_one_place_become_their_median():
    """Merged profiles repeat places; one place has one answer."""
    extra = [
        Point(batch_sequences=1, seq_len_tokens=512, time_s=decode_law(1, 512) * factor)
        for factor in (1.01, 1.02)
    ]
    answer = fitted(points=[*points_of(), *extra]).time_s(Query(1, 512))
    assert answer.value == pytest.approx(decode_law(1, 512) * 1.01)
    assert len(answer.rows) == 3


def serve_law(batch, prompt, output):
    return 8e-3 + 1e-4 * batch + 1e-8 * batch * (prompt + output / 2) + 2e-6 * batch * prompt / output


def test_serving_points_are_fitted_over_concurrency_prompt_and_output():
    """Serving profiles have two lengths; the ratio of both is what prefill costs."""
    points = [
        Point(batch_sequences=b, prompt_tokens=i, output_tokens=o, time_s=serve_law(b, i, o))
        for b in (1, 8, 64)
        for i in (512, 4096)
        for o in (128, 1024)
    ]
    model = fit_profile(profile_file("serve"), points)
    answer = model.time_s(Query(16, prompt_tokens=1024, output_tokens=256))
    assert answer.value == pytest.approx(serve_law(16, 1024, 256), rel=0.03)
    assert model.time_s(Query(8, prompt_tokens=512, output_tokens=2048)).origin is Origin.EXTRAPOLATED
    with pytest.raises(RefusedError):
        model.time_s(Query(8, prompt_tokens=512, output_tokens=4096))
    assert model.decode_coefficients().per_prefill_s == pytest.approx(2e-6, rel=0.2)


def test_a_fitted_profile_cannot_be_changed():
    """A price must not drift during a solve."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        DECODE.fits = ()
    assert isinstance(DECODE, FittedProfile)


def _queries(profile, count=300, seed=0):
    """Draw questions in and around the measured range, measured places among them."""
    rng = np.random.default_rng(seed)
    curve = profile.fits[0].time
    (b0, b1), (l0, l1) = curve.domain.box()
    drawn = [Query(2 ** rng.uniform(b0 - 1, b1 + 1), 2 ** rng.uniform(l0 - 1, l1 + 1)) for _ in range(count)]
    return [*drawn, *(Query(sample.batch, sample.length) for sample in curve.samples)]


def _one_by_one(ask, queries):
    def answer(query):
        try:
            return ask(query)
        except RefusedError as refusal:
            return refusal

    return [answer(query) for query in queries]


def _assert_same(together, alone):
    assert len(together) == len(alone)
    for ours, theirs in zip(together, alone, strict=True):
        assert type(ours) is type(theirs)
        if isinstance(ours, Estimate):
            assert (ours.unit, ours.origin) == (theirs.unit, theirs.origin)
            for name in ("value", "low", "high"):
                assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-9)
        else:
            assert str(ours) == str(theirs)


@pytest.mark.parametrize("name", ["7b-decode", "0.5b-score", "1.5b-train", "0.5b-train-ddp"])
@pytest.mark.parametrize("allow_prior", [False, True])
def test_the_same_answers_as_one_by_one(name, allow_prior):
    """Speed must not change an answer, a bound, an origin or a refusal."""
    profile = shipped(name)
    queries = _queries(profile) if profile.layouts else [Query(2, 2048), Query(2, 8192, dp=2)]
    times = profile.times(queries, allow_prior=allow_prior)
    memories = profile.memories(queries, allow_prior=allow_prior)
    _assert_same(times, _one_by_one(lambda q: profile.time_s(q, allow_prior=allow_prior), queries))
    _assert_same(memories, _one_by_one(lambda q: profile.memory_mib(q, allow_prior=allow_prior), queries))


SIZES = st.floats(-2, 18).map(lambda power: 2.0**power) | st.sampled_from([1.0, 4.0, 512.0, 2048.0, math.nan])
QUERIES = st.builds(
    Query,
    SIZES,
    SIZES | st.none(),
    layout=st.builds(
        Layout,
        st.sampled_from([1, 1, 1, 2, 4, 3]),
        st.sampled_from([1, 1, 2]),
        st.sampled_from([1, 1, 2]),
    ),
    dp=st.sampled_from([1, 1, 2, 4]),
)


_once = lru_cache(shipped)


@lru_cache
def _never_measured(phase):
    """Fit a 3B model, which nobody measured, from the three sizes that were."""
    donors = [shipped(f"{size}-{phase}") for size in ("0.5b", "1.5b", "7b")]
    shape = msgspec.structs.replace(donors[1].profile.model, id="qwen2.5-3b", params=3085938688, layers=36)
    file = msgspec.structs.replace(donors[1].profile, id=f"prior-{phase}", model=shape)
    return fit_profile(file, (), donors=donors)


@lru_cache
def _sparse():
    """Fit a profile whose places lie on a line, with one that ran out of memory and one at two ranks."""
    points = points_of(lambda b, s: 0.1 + 1e-5 * b * s, grid=[(1, 2**p) for p in range(9, 16)])
    oom = Point(status="oom", batch_sequences=64, seq_len_tokens=32768)
    ranks = Point(batch_sequences=1, seq_len_tokens=2048, dp=2, time_s=0.2, peak_reserved_mib=17000)
    return fitted("train", [*points, oom, ranks])


@pytest.mark.parametrize(
    "profile",
    [
        lambda: _once("7b-decode"),
        lambda: _once("1.5b-train"),
        lambda: _never_measured("decode"),
        lambda: _never_measured("train"),
        _sparse,
    ],
    ids=["decode", "train", "decode prior", "train prior", "sparse"],
)
@given(st.lists(QUERIES, min_size=1, max_size=25), st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_mix_of_questions_is_answered_as_one_by_one(profile, queries, allow_prior):
    """Inside, edge, beyond, other layouts, more ranks, priors and nonsense: no rule may differ in a table."""
    fit = profile()
    times = fit.times(queries, allow_prior=allow_prior)
    memories = fit.memories(queries, allow_prior=allow_prior)
    _assert_same(times, _one_by_one(lambda q: fit.time_s(q, allow_prior=allow_prior), queries))
    _assert_same(memories, _one_by_one(lambda q: fit.memory_mib(q, allow_prior=allow_prior), queries))


def test_questions_of_all_kinds_keep_their_order():
    """Answers are matched to rows by position, so one that is refused may not shift the others."""
    profile = fitted()
    queries = [
        Query(8, 1000),
        Query(8),
        Query(8, 1000, layout=Layout(tp=2)),
        Query(10**6, 1000),
        Query(4, 512),
        Query(9, 1000),
    ]
    answers = profile.times(queries)
    assert [isinstance(answer, Estimate) for answer in answers] == [True, False, False, False, True, True]
    assert answers[0].value < answers[5].value


def test_chunks_do_not_show(monkeypatch):
    """Questions are evaluated in pieces to bound memory; a seam must not show."""
    profile = fitted()
    queries = _queries(profile, 50)
    whole = profile.times(queries)
    monkeypatch.setattr(fit_module, "_CHUNK", 7)
    _assert_same(profile.times(queries), whole)


def test_what_ran_out_of_memory_is_refused_at_once():
    """A place beyond one that was tried and failed must not be called feasible by the fast way."""
    oom = Point(status="oom", batch_sequences=32, seq_len_tokens=4096)
    profile = fitted(points=[*points_of(), oom])
    answers = profile.memories([Query(32, 4096), Query(40, 5000), Query(31, 4000)])
    assert [isinstance(answer, RefusedError) for answer in answers] == [True, True, False]

"""Many questions at once against one by one."""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec
import numpy as np
import pytest
from fitting import fitted, points_of, shipped
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import RefusedError
from libra_plan.models import many
from libra_plan.models.fit import fit_profile
from libra_plan.models.many import memory_many, time_many
from libra_plan.models.quantities import Estimate
from libra_plan.models.query import Query
from libra_plan.profiles.schema import Point


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
    times = time_many(profile, queries, allow_prior=allow_prior)
    memories = memory_many(profile, queries, allow_prior=allow_prior)
    _assert_same(times, _one_by_one(lambda q: profile.time_s(q, allow_prior=allow_prior), queries))
    _assert_same(memories, _one_by_one(lambda q: profile.memory_mib(q, allow_prior=allow_prior), queries))


SIZES = st.floats(-2, 18).map(lambda power: 2.0**power) | st.sampled_from([1.0, 4.0, 512.0, 2048.0, math.nan])
QUERIES = st.builds(
    Query,
    SIZES,
    SIZES | st.none(),
    tp=st.sampled_from([1, 1, 1, 2, 4, 3]),
    pp=st.sampled_from([1, 1, 2]),
    cp=st.sampled_from([1, 1, 2]),
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
    times = time_many(fit, queries, allow_prior=allow_prior)
    memories = memory_many(fit, queries, allow_prior=allow_prior)
    _assert_same(times, _one_by_one(lambda q: fit.time_s(q, allow_prior=allow_prior), queries))
    _assert_same(memories, _one_by_one(lambda q: fit.memory_mib(q, allow_prior=allow_prior), queries))


def test_questions_of_all_kinds_keep_their_order():
    """Answers are matched to rows by position, so one that is refused may not shift the others."""
    profile = fitted()
    queries = [
        Query(8, 1000),
        Query(8),
        Query(8, 1000, tp=2),
        Query(10**6, 1000),
        Query(4, 512),
        Query(9, 1000),
    ]
    answers = time_many(profile, queries)
    assert [isinstance(answer, Estimate) for answer in answers] == [True, False, False, False, True, True]
    assert answers[0].value < answers[5].value


def test_chunks_do_not_show(monkeypatch):
    """Questions are evaluated in pieces to bound memory; a seam must not show."""
    profile = fitted()
    queries = _queries(profile, 50)
    whole = time_many(profile, queries)
    monkeypatch.setattr(many, "_CHUNK", 7)
    _assert_same(time_many(profile, queries), whole)


def test_what_ran_out_of_memory_is_refused_at_once():
    """A place beyond one that was tried and failed must not be called feasible by the fast way."""
    oom = Point(status="oom", batch_sequences=32, seq_len_tokens=4096)
    profile = fitted(points=[*points_of(), oom])
    answers = memory_many(profile, [Query(32, 4096), Query(40, 5000), Query(31, 4000)])
    assert [isinstance(answer, RefusedError) for answer in answers] == [True, True, False]

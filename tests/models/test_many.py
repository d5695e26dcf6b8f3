"""Many questions at once against one by one."""

from __future__ import annotations

import numpy as np
import pytest
from fitting import fitted, shipped

from libra_plan.errors import RefusedError
from libra_plan.models import many
from libra_plan.models.many import memory_many, time_many
from libra_plan.models.quantities import Estimate
from libra_plan.models.query import Query


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
    from fitting import points_of

    from libra_plan.profiles.schema import Point

    oom = Point(status="oom", batch_sequences=32, seq_len_tokens=4096)
    profile = fitted(points=[*points_of(), oom])
    answers = memory_many(profile, [Query(32, 4096), Query(40, 5000), Query(31, 4000)])
    assert [isinstance(answer, RefusedError) for answer in answers] == [True, True, False]

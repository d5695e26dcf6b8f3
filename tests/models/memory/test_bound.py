import pytest
from fitting import shipped
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import RefusedError
from libra_plan.models.costs.base import places_of
from libra_plan.models.fit import fit_profile
from libra_plan.models.memory.bound import MemoryBound, RunReserve, run_reserve
from libra_plan.models.memory.states import standing_mib
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import load_profile, shipped_folder

NAMES = [
    f"{which}-qwen2.5-{model}-{phase}"
    for which in ("h200", "h200b")
    for model in ("0.5b", "1.5b", "7b")
    for phase in ("decode", "score", "train")
]


def _fitted(name):
    loaded = load_profile(shipped_folder() / name)
    return fit_profile(loaded.file, loaded.points)


FITTED = {name: _fitted(name) for name in NAMES}
LOG_BATCH, LOG_LENGTH, GROWTH = st.floats(-2, 11), st.floats(4, 18), st.floats(0, 3)


def _upper(fitted, batch, length, allow_prior):
    try:
        return fitted.memory_mib(Query(batch, length), allow_prior=allow_prior).high
    except RefusedError:
        return None


@given(st.sampled_from(NAMES), LOG_BATCH, LOG_LENGTH, GROWTH, GROWTH, st.booleans())
@settings(max_examples=400, deadline=None)
def test_a_larger_run_never_gets_a_smaller_bound(name, batch, length, wider, longer, allow_prior):
    """Bumps of an allocator are no law: 16,384 tokens measured above 24,576 must not bound them lower."""
    fitted = FITTED[name]
    small = _upper(fitted, 2**batch, 2**length, allow_prior)
    large = _upper(fitted, 2 ** (batch + wider), 2 ** (length + longer), allow_prior)
    if small is not None and large is not None:
        assert small <= large * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_bounds_of_measured_places_grow_with_them(name):
    """Places that were measured are asked most, and lie on the corners where bounds change hands."""
    samples = FITTED[name].by_layout[Layout()].memory.samples
    upper = [FITTED[name].memory_mib(Query(sample.batch, sample.length)).high for sample in samples]
    for sample, own in zip(samples, upper, strict=True):
        for other, larger in zip(samples, upper, strict=True):
            if sample.batch <= other.batch and sample.length <= other.length:
                assert own <= larger


def test_a025_a_measured_peak_keeps_a_reserve_for_fragmentation():
    """Reserved peaks of one step differ by gigabytes between runs: fragmentation and kept workspaces."""
    for name in NAMES:
        fitted = FITTED[name]
        states = standing_mib(fitted.profile, Layout(), 1)
        for sample in fitted.by_layout[Layout()].memory.samples:
            answer = fitted.memory_mib(Query(sample.batch, sample.length))
            still = min(states, sample.value)
            room = run_reserve("h200_sxm").mib + run_reserve("h200_sxm").share * (sample.value - still)
            assert answer.high >= sample.value + room - 1e-6
            assert answer.value == sample.value


def test_many_places_are_bounded_like_one():
    """Tables are answered together, plans one by one; they must not disagree."""
    fitted = shipped("7b-train")
    bound = fitted.bounds[Layout()]
    rows = [(float(b), float(s), 1.0) for b in (1, 2) for s in (600, 1500, 4000)]
    assert bound.at(places_of(rows)) == pytest.approx([float(bound.at(places_of([row]))[0]) for row in rows])


def test_outside_the_value_is_no_less_than_a_smaller_measured_run():
    """Beyond the points a form may undercut what was seen; memory is never extrapolated downward."""
    for name in NAMES:
        fitted = FITTED[name]
        samples = fitted.by_layout[Layout()].memory.samples
        longest = max(sample.length for sample in samples)
        for factor in (1.1, 1.5, 2.0):
            try:
                answer = fitted.memory_mib(Query(1, longest * factor))
            except RefusedError:
                continue
            assert answer.value >= max(s.value for s in samples if s.batch == 1)


def test_a_bound_without_reserve_is_the_model_alone():
    """What the reserve adds has to be separable, so that another stack may state its own."""
    fitted = shipped("7b-decode")
    curve = fitted.by_layout[Layout()].memory
    bare = MemoryBound(curve, 14526.0, RunReserve(0.0, 0.0))
    sample = max(curve.samples, key=lambda sample: sample.value)
    assert bare.at(places_of([sample.place]))[0] == pytest.approx(sample.value * 1.01)

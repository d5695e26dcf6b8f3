from dataclasses import replace
from functools import lru_cache
from statistics import median

import pytest
from affine_profile import profile_file
from fitting import decode_law, points_of, shipped
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import RefusedError
from libra_plan.models.costs.base import places_of
from libra_plan.models.fit import fit_profile
from libra_plan.models.parallelism import Layout
from libra_plan.models.priors.models import prior_for
from libra_plan.models.priors.roofline import roofline_s
from libra_plan.models.quantities import Origin
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import load_profile, shipped_folder

SIZES = ("0.5b", "1.5b", "7b")


OWN_REMAINS = {("h200", "0.5b", "decode"), ("h200", "1.5b", "decode")}
"""The first set's decode runs of 1.5B and 7B hold about 1 GiB more at the same places than the second's
(3,853 against 2,995 MiB allocated at one sequence of 512 tokens), those of 0.5B 66 MiB more: no law of
size foretells that."""


@lru_cache
def _set(set_name, mode):
    loaded = [load_profile(shipped_folder() / f"{set_name}-qwen2.5-{size}-{mode}") for size in SIZES]
    return {size: fit_profile(each.file, each.points) for size, each in zip(SIZES, loaded, strict=True)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("set_name", "mode"),
    [(each, mode) for each in ("h200", "h200b") for mode in ("decode", "score", "train")]
    + [("h200b", "decode-gqa")],
)
def test_each_size_left_out_is_predicted_from_the_others(set_name, mode, size):
    """Time within 15 % and memory within 8 % in the median, memory under its bound, for every size alone."""
    profiles = _set(set_name, mode)
    prior = prior_for(profiles[size].profile, [other for name, other in profiles.items() if name != size])
    fit = profiles[size].by_layout[Layout()]
    time = [abs(prior.times_s(places_of([s.place]))[0].value / s.value - 1) for s in fit.time.samples]
    guesses = [(prior.memories_mib(places_of([s.place]))[0], s.value) for s in fit.memory.samples]
    memory = [abs(guess.value / value - 1) for guess, value in guesses]
    assert median(time) <= 0.15
    assert sum(guess.high >= value for guess, value in guesses) >= 0.95 * len(guesses)
    if (set_name, size, mode) not in OWN_REMAINS:
        assert median(memory) <= 0.08


@pytest.mark.parametrize("mode", ["decode", "decode-gqa", "score", "train"])
@given(batch=st.floats(1, 4096), length=st.floats(16, 131072), scale=st.sampled_from([1.0, 0.2]))
@settings(max_examples=30, deadline=None)
def test_no_guess_is_faster_than_the_data_sheet(mode, batch, length, scale):
    """A prior below the roofline promises what the GPU cannot do; its low bound may not either."""
    profiles = _set("h200b", mode)
    prior = prior_for(profiles["7b"].profile, [profiles["0.5b"], profiles["1.5b"]])
    prior = replace(prior, time_scale=scale)
    least = float(roofline_s(prior.profile, places_of([(batch, length, 1.0)]))[0])
    guess = prior.times_s(places_of([(batch, length, 1.0)]))[0]
    assert least <= guess.low <= guess.value <= guess.high


def test_a_guess_raised_to_the_floor_says_so():
    """Who reads the answer must see that the data sheet, not the donors, set it."""
    profiles = _set("h200b", "decode")
    prior = prior_for(profiles["7b"].profile, [profiles["0.5b"], profiles["1.5b"]])
    assert "data sheet" not in str(prior.times_s(places_of([(8.0, 2048.0, 1.0)]))[0].rows)
    assert (
        "data sheet" in replace(prior, time_scale=1e-3).times_s(places_of([(8.0, 2048.0, 1.0)]))[0].rows[-1]
    )


def test_a_profile_with_two_points_answers_only_where_priors_are_allowed():
    """A guess may help a user who asked for it; it must never slip in."""
    donors = [shipped(f"{size}-decode") for size in SIZES]
    model = fit_profile(profile_file("decode"), points_of(grid=[(1, 512), (64, 2048)]), donors=donors)
    with pytest.raises(RefusedError, match="too few points"):
        model.time_s(Query(8, 2048))
    guess = model.time_s(Query(8, 2048), allow_prior=True)
    assert guess.origin is Origin.ASSUMED
    assert guess.value == pytest.approx(decode_law(8, 2048), rel=0.3)
    assert model.memory_mib(Query(8, 2048), allow_prior=True).value > 14525
    assert model.time_s(Query(8, 2048, layout=Layout(tp=2)), allow_prior=True).value < guess.value
    assert model.decode_coefficients(allow_prior=True).fixed_s > 0
    assert 1 <= model.max_batch(2048, 80000, allow_prior=True) <= 256


def test_one_donor_is_not_enough():
    """From one model nothing can be said about how cost grows with size."""
    with pytest.raises(RefusedError, match="a prior needs measured models"):
        prior_for(profile_file("decode"), [shipped("7b-decode")])


def test_other_gpus_and_phases_do_not_donate():
    """An H200's times say nothing about another card's."""
    donors = [shipped(f"{size}-decode") for size in SIZES]
    with pytest.raises(RefusedError):
        prior_for(profile_file("decode", gpu_class="a100_sxm"), donors)
    with pytest.raises(RefusedError):
        prior_for(profile_file("score"), donors)

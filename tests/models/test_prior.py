import pytest
from affine_profile import profile_file
from fitting import decode_law, points_of, shipped

from libra_plan.errors import RefusedError
from libra_plan.models.fit import Query, fit_profile
from libra_plan.models.parallelism import Layout
from libra_plan.models.prior import prior_for
from libra_plan.models.quantities import Origin

SIZES = ("0.5b", "1.5b", "7b")


@pytest.mark.parametrize("phase", ["decode", "score", "train"])
def test_a_model_left_out_is_predicted_from_the_others(phase):
    """Time within 15 % and memory within 8 % in the median, and memory under its bound."""
    profiles = [shipped(f"{size}-{phase}") for size in SIZES]
    time, memory, covered = [], [], []
    for profile in profiles:
        prior = prior_for(profile.profile, [other for other in profiles if other is not profile])
        fit = profile.by_layout[Layout()]
        time += [abs(prior.time_s(s.place).value / s.value - 1) for s in fit.time.samples]
        guesses = [(prior.memory_mib(s.place), s.value) for s in fit.memory.samples]
        memory += [abs(guess.value / value - 1) for guess, value in guesses]
        covered += [guess.high >= value for guess, value in guesses]
    assert sorted(time)[len(time) // 2] <= 0.15
    assert sorted(memory)[len(memory) // 2] <= 0.08
    assert sum(covered) >= 0.95 * len(covered)


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
    assert model.time_s(Query(8, 2048, tp=2), allow_prior=True).value < guess.value
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

"""Costs of shipped profiles in place of the base's."""

import pytest
from sim_worlds import DECODE, TRAIN, make_task

from libra_plan.errors import WorkloadError
from libra_plan.models.fit import fit_profile
from libra_plan.planner.simulate.fit.profiled import with_profiles
from libra_plan.planner.simulate.world import Costs, Scoring, Training
from libra_plan.profiles.catalog import load_profile, shipped_folder


def profile(name):
    """Fit a shipped profile."""
    loaded = load_profile(shipped_folder() / name)
    return fit_profile(loaded.file, loaded.points)


def test_profiles_of_each_phase_stand_in_for_the_bases_costs():
    """Seconds are the profile's, room and slots the task's own."""
    scoring = (Scoring(id="reference", per_token_s=1.0),)
    task = make_task(costs=Costs(decode=(DECODE,), train=TRAIN, scoring=scoring))
    names = (
        "h200b-qwen2.5-1.5b-decode-gqa",
        "h200c-qwen2.5-1.5b-train-accumulated",
        "h200b-qwen2.5-1.5b-score",
    )
    new, said = with_profiles(task, [profile(name) for name in names])
    step = profile(names[0]).decode_coefficients()
    assert new.costs.decode[0].fixed_s == pytest.approx(step.fixed_s, rel=1e-5)
    assert new.costs.decode[0].kv_tokens == DECODE.kv_tokens
    assert 1e-5 < new.costs.train.per_token_s < 1e-4
    assert new.costs.scoring[0].per_token_s < 1e-4
    assert [line.split(": ")[1] for line in said] == [f"profile {name}" for name in names]


def test_a_profile_of_another_size_is_refused():
    """Training replicas of eight GPUs are not priced by one."""
    train = Training(gpus=8, per_token_s=1e-5, micro_batch_tokens=1000)
    task = make_task(costs=Costs(decode=(DECODE,), train=train))
    with pytest.raises(WorkloadError, match="tells no costs"):
        with_profiles(task, [profile("h200c-qwen2.5-1.5b-train-accumulated")])

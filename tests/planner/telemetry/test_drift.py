"""Observed against predicted: which profile is off, in which places, and from what on."""

from __future__ import annotations

import pytest

from libra_plan.errors import InputError
from libra_plan.models.corrections import CorrectionsFile
from libra_plan.models.fit import fit_profile
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.query import Query
from libra_plan.planner.telemetry.drift import PlannedStage, drifts
from libra_plan.planner.telemetry.work_windows import WorkWindow
from libra_plan.profiles.catalog import load_profile, shipped_folder
from libra_plan.profiles.schema import Fixed, RoleSpec, TaskSpec, WorkSpec

TRAIN, DECODE = "h200-qwen2.5-0.5b-train", "h200-qwen2.5-0.5b-decode"


@pytest.fixture(scope="module")
def profiles():
    return {name: load_profile(shipped_folder() / name) for name in (TRAIN, DECODE)}


@pytest.fixture(scope="module")
def fits(profiles):
    made = {name: fit_profile(each.file, each.points) for name, each in profiles.items()}
    return lambda profile: made[profile.file.id]


def task(name="t"):
    roles = (
        RoleSpec(id="actor", kind="actor_train", profiles=(TRAIN,)),
        RoleSpec(id="rollout", kind="rollout", profiles=(DECODE,)),
    )
    return TaskSpec(id=name, work_per_step=WorkSpec(samples=16, prompt_tokens=Fixed(tokens=64)), roles=roles)


def steps(seconds, number=20, *, begin_s=0.0, role="actor", batch=16.0, length=1024.0, **more):
    """Return windows of one step each."""
    return [
        WorkWindow(
            start_s=begin_s + at * seconds,
            end_s=begin_s + (at + 1) * seconds,
            task="t",
            role=role,
            steps=1.0,
            batch_sequences=batch,
            seq_len_tokens=length,
            **more,
        )
        for at in range(number)
    ]


def found(profiles, fits, windows, **more):
    return {each.correction.role: each for each in drifts([task()], profiles, fits, windows, **more)}


def predicted_s(profiles, fits, name=TRAIN, batch=16.0, length=1024.0):
    return fits(profiles[name]).time_s(Query(batch, length)).value


def test_a_profile_that_is_off_by_a_quarter_is_found_out(profiles, fits):
    """Waiting for others is not the profile's fault."""
    wait_s = 0.1
    seconds = 1.25 * predicted_s(profiles, fits) + wait_s
    drift = found(profiles, fits, steps(seconds, waiting_s=wait_s))["actor"]
    own = drift.correction
    assert own.state.factor == pytest.approx(1.25)
    assert (own.profile, own.gpu_class, own.basis, own.layout) == (TRAIN, "h200_sxm", "step", Layout())
    assert (drift.taken, drift.left_out) == (20, ())


def test_places_outside_what_was_measured_are_left_out_and_counted(profiles, fits):
    """There the model's own error would be taken for the run's."""
    odd = steps(0.1, batch=3.0, length=64.0) + steps(1.0, begin_s=100.0)
    drift = found(profiles, fits, odd)["actor"]
    assert drift.taken == 20
    assert sum(count for _, count in drift.left_out) == 20


def test_a_decoding_step_is_a_token_of_every_sequence(profiles, fits):
    """Engines count tokens, not steps."""
    seconds = predicted_s(profiles, fits, DECODE, 64.0, 2048.0)
    windows = [
        WorkWindow(
            start_s=10.0 * at,
            end_s=10.0 * at + 10.0,
            role="rollout",
            tokens=64 * 10.0 / (1.1 * seconds),
            batch_sequences=64.0,
            seq_len_tokens=2048.0,
        )
        for at in range(10)
    ]
    assert found(profiles, fits, windows)["rollout"].correction.state.factor == pytest.approx(1.1)


def test_ranks_of_one_step_are_one_observation(profiles, fits):
    """Eight ranks that wait for each other know no more than one."""
    seconds = predicted_s(profiles, fits)
    windows = [window for rank in range(8) for window in steps(seconds, dp_rank=rank, source=f"p{rank}")]
    assert found(profiles, fits, windows)["actor"].taken == 20


def test_what_was_taken_in_before_is_not_taken_in_again(profiles, fits):
    """Corrections are gone on from with recordings that overlap the earlier ones."""
    seconds = predicted_s(profiles, fits)
    first = found(profiles, fits, steps(seconds))["actor"]
    before = CorrectionsFile(1, (first.correction,))
    second = found(profiles, fits, steps(seconds, 30), before=before)["actor"]
    assert (second.taken, dict(second.left_out)) == (10, {"taken in before": 20})
    assert second.correction.state.observations == 30


def test_steps_without_batch_are_compared_with_the_plan(profiles, fits):
    """A trainer's log says how long a stage took; the plan said how long it would."""
    windows = [
        WorkWindow(
            start_s=100.0 * at, end_s=100.0 * (at + 1), task="t", role="rollout", steps=1.0, waiting_s=40.0
        )
        for at in range(10)
    ]
    stage = PlannedStage(Estimate(50.0, 45.0, 55.0, "s", Origin.INTERPOLATED), Layout(tp=2))
    own = found(profiles, fits, windows, stage_times={("t", "rollout"): stage})["rollout"].correction
    assert (own.basis, own.profile, own.layout) == ("stage", None, Layout(tp=2))
    assert own.state.factor == pytest.approx(60 / 50)
    assumed = PlannedStage(Estimate(50.0, 45.0, 55.0, "s", Origin.EXTRAPOLATED), Layout())
    for given, why in ((None, "no plan was given"), ({("t", "rollout"): assumed}, "extrapolated")):
        drift = found(profiles, fits, windows, stage_times=given)["rollout"]
        assert drift.taken == 0
        assert why in drift.left_out[0][0]


def test_steps_of_another_generation_are_not_held_against_the_plan(profiles, fits):
    """A recording goes on over a restart in another layout, whose stage times are others."""
    windows = [
        WorkWindow(
            start_s=100.0 * at, end_s=100.0 * (at + 1), task="t", role="rollout", steps=1.0, generation=of
        )
        for at, of in enumerate((1, 1, 2, 2, 2, None))
    ]
    stage = PlannedStage(Estimate(50.0, 45.0, 55.0, "s", Origin.INTERPOLATED), Layout(tp=2), generation=2)
    drift = found(profiles, fits, windows, stage_times={("t", "rollout"): stage})["rollout"]
    assert drift.taken == 4
    assert drift.left_out == (("it is of generation 1 of the task, not 2", 2),)


def test_steps_of_another_batch_are_observations_of_the_same_role(profiles, fits):
    """The factor is the role's; what it was seen in is the latest layout."""
    seconds = predicted_s(profiles, fits)
    mixed = steps(seconds) + steps(
        predicted_s(profiles, fits, batch=8.0, length=2048.0), begin_s=100.0, batch=8.0, length=2048.0
    )
    assert found(profiles, fits, mixed)["actor"].correction.state.observations == 40


def test_a_recording_that_names_no_task_needs_it_where_two_have_the_role(profiles, fits):
    """Whose steps they are must not be guessed."""
    (window,) = steps(1.0, 1)
    nameless = [WorkWindow(start_s=0.0, end_s=1.0, role="actor", steps=1.0)]
    assert next(drifts([task()], profiles, fits, [window])).correction.task == "t"
    with pytest.raises(InputError, match="names no task"):
        list(drifts([task(), task("u")], profiles, fits, nameless))

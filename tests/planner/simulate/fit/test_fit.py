"""Round trips: a world is simulated and recorded, another is fitted to that, and figures come back."""

import msgspec
import pytest
from sim_recordings import run_held, slower, write_counters, write_trace, write_trajectories
from sim_worlds import DECODE, TRAIN, Scoring, Tools, make_task, make_world

from libra_plan.errors import InputError, WorkloadError
from libra_plan.planner.simulate.fit.evidence import Recorded, TaskSeen
from libra_plan.planner.simulate.fit.fit import fit_recorded
from libra_plan.planner.simulate.fit.sources import read_recordings
from libra_plan.planner.simulate.world import Costs, Drift
from libra_plan.planner.telemetry.readers import ReaderFacts

SCORING = Scoring(id="reference", per_token_s=5e-6)


def base_world(**more):
    """Make the world that fits begin with: other lengths, drift and costs than what is recorded."""
    costs = Costs(decode=(DECODE,), train=TRAIN, scoring=(SCORING,))
    given = {"samples": 96, "costs": costs, "mean": 900.0, "sigma": 1.0, **more}
    return make_world(make_task(**given), hours=2.0)


def true_world(base, steps=48, sigma=0.05, drift=1.6, **task):
    """Make what is recorded: decoding 1.4 times as slow, training 0.8 times, drifting lengths."""
    world = slower(base, decode=1.4, train=0.8)
    old = world.tasks[0]
    train = msgspec.structs.replace(old.costs.train, straggler_sigma=sigma)
    scoring = (msgspec.structs.replace(SCORING, per_token_s=3e-6),)
    law = Drift(
        first_mean_tokens=700, last_mean_tokens=700 * drift, steps=steps - 1, sigma=0.6, max_tokens=8000
    )
    costs = msgspec.structs.replace(old.costs, train=train, scoring=scoring)
    new = msgspec.structs.replace(old, responses=law, costs=costs, steps=steps, **task)
    return msgspec.structs.replace(world, tasks=(new,))


def fitted(base, paths, placed=None):
    """Read and fit."""
    return fit_recorded(base, read_recordings(paths, ReaderFacts()), placed, "fitted")


def by_key(fit):
    """Map figures by key."""
    return {figure.key: figure for figure in fit.figures}


_SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3)]


@pytest.mark.parametrize("seed", [1, *_SLOW])
def test_a_trace_and_its_trajectories_give_the_world_back(tmp_path, seed):
    """What docs/simulate.md states: costs within 10 %, lengths within 5 %, stragglers within 35 %."""
    base = base_world()
    true = true_world(base)
    record = run_held(true, seed, rollout=[1] * 4, reference=[1], train=[1] * 3)
    trace = write_trace(tmp_path / "trace.jsonl", record)
    lengths = write_trajectories(tmp_path / "trajectories.jsonl", true.tasks[0], seed, 20)
    fit = fitted(base, [trace, lengths])
    found, law = by_key(fit), fit.world.tasks[0].responses
    assert found["rl.costs.decode: × the base's"].value == pytest.approx(1.4, rel=0.10)
    assert found["rl.costs.train: × the base's"].value == pytest.approx(0.8, rel=0.04)
    assert fit.world.tasks[0].costs.train.straggler_sigma == pytest.approx(0.05, rel=0.35)
    assert fit.world.tasks[0].costs.scoring[0].per_token_s == pytest.approx(3e-6, rel=1e-6)
    assert law.sigma == pytest.approx(0.6, rel=0.05)
    assert law.first_mean_tokens == pytest.approx(700, rel=0.05)
    assert law.last_mean_tokens == pytest.approx(1120, rel=0.05)
    assert fit.world.tasks[0].samples == 96


@pytest.mark.slow
def test_a_fitted_world_takes_as_long_as_the_recorded_one(tmp_path):
    """What a fit is for: another seed of the fitted world takes as long, within 12 % over 48 steps."""
    base = base_world()
    true = true_world(base)
    placed = {"rollout": [1] * 4, "reference": [1], "train": [1] * 3}
    trace = write_trace(tmp_path / "trace.jsonl", run_held(true, 1, **placed))
    lengths = write_trajectories(tmp_path / "trajectories.jsonl", true.tasks[0], 1, 20)
    world = fitted(base, [trace, lengths]).world
    ends = [run_held(each, 9, **placed).steps[47].at_s for each in (true, world)]
    assert ends[1] == pytest.approx(ends[0], rel=0.12)


def test_counters_of_ranks_give_the_costs_back(tmp_path):
    """Windows of every rank are joined to steps; the layout comes from their degrees."""
    base = make_world(make_task(samples=96, sigma=0.6), hours=2.0)
    true = slower(base, decode=1.4, train=0.8)
    true = msgspec.structs.replace(true, tasks=(msgspec.structs.replace(true.tasks[0], steps=40),))
    folder = write_counters(tmp_path / "run", true, 5, rollout=[1] * 4, train=[1] * 3)
    found = by_key(fitted(base, [folder]))
    assert found["rl.costs.decode: × the base's"].value == pytest.approx(1.4, rel=0.10)
    assert found["rl.costs.train: × the base's"].value == pytest.approx(0.8, rel=0.04)
    assert found["rl.responses.first_mean_tokens"].value == pytest.approx(800, rel=0.05)
    assert found["rl.prompts: mean"].value == pytest.approx(209, rel=0.05)


@pytest.mark.parametrize("mean_s", [pytest.param(1.0, marks=pytest.mark.slow), 4.0])
def test_tool_waits_are_not_taken_for_decoding(tmp_path, mean_s):
    """Turns and waits come from trajectories; the decode factor is solved for beside them."""
    base = base_world(turns=2)
    true = true_world(base, turns=5, tools=Tools(mean_s=mean_s, sigma=0.7, on_workers=False), drift=1.0)
    trace = write_trace(
        tmp_path / "t.jsonl", run_held(true, 3, rollout=[1] * 4, reference=[1], train=[1] * 3)
    )
    lengths = write_trajectories(tmp_path / "l.jsonl", true.tasks[0], 3, 20)
    fit = fitted(base, [trace, lengths])
    found, task = by_key(fit), fit.world.tasks[0]
    assert task.turns == 5
    assert task.tools.mean_s == pytest.approx(mean_s, rel=0.05)
    assert task.tools.sigma == pytest.approx(0.7, rel=0.05)
    assert found["rl.costs.decode: × the base's"].value == pytest.approx(1.4, rel=0.15)
    assert (
        "rl.tools.on_workers false",
        "a recording does not tell whether calls took a CPU worker each",
    ) in (fit.assumed)


def test_waits_that_hide_decoding_leave_its_costs_alone(tmp_path):
    """Where a rollout is nearly all waiting, its seconds say nothing of decoding, and that is told."""
    base = base_world()
    true = true_world(base, turns=5, tools=Tools(mean_s=2000.0, sigma=0.0, on_workers=False), steps=10)
    true = msgspec.structs.replace(true, hours=60.0)
    trace = write_trace(
        tmp_path / "t.jsonl", run_held(true, 3, rollout=[1] * 4, reference=[1], train=[1] * 3)
    )
    lengths = write_trajectories(tmp_path / "l.jsonl", true.tasks[0], 3, 10)
    fit = fitted(base, [trace, lengths])
    assert "tool waits hide" in dict(fit.assumed)["rl.costs.decode"]
    assert fit.world.tasks[0].costs.decode == base.tasks[0].costs.decode


def test_everything_is_fitted_or_named_as_assumed(tmp_path):
    """No figure of the file may be a silent guess: `origin` names both, with counts and intervals."""
    base = base_world()
    record = run_held(true_world(base), 1, rollout=[1] * 4, reference=[1], train=[1] * 3)
    fit = fitted(base, [write_trace(tmp_path / "t.jsonl", record)])
    for word in ("48 steps of t.jsonl", "a trace of the simulator", "× the base's", "own origin: a test"):
        assert word in fit.world.origin
    for key in (
        "rl.responses.sigma",
        "rl.prompts.sigma",
        "rl.turns",
        "rl.tools",
        "failures: none",
        "model_error",
    ):
        assert key in dict(fit.assumed)
        assert f"- {key}: " in fit.world.origin
    assert fit.world.tasks[0].responses.sigma == base.tasks[0].responses.sigma


def test_too_short_a_recording_is_refused_with_the_way_out(tmp_path):
    """Five steps support nothing: the base's figures under a new name would be taken for measured ones."""
    base = base_world()
    true = true_world(base, steps=5)
    trace = write_trace(tmp_path / "t.jsonl", run_held(true, 1, rollout=[1] * 4, reference=[1], train=[1]))
    with pytest.raises(WorkloadError, match="cannot support a fit") as told:
        fitted(base, [trace])
    assert "record for longer" in str(told.value)


def test_recordings_of_tasks_that_the_base_lacks_are_refused():
    """Another task's costs must not become this one's."""
    two = make_world(make_task("one"), make_task("two"))
    with pytest.raises(InputError, match="does not have"):
        fit_recorded(two, Recorded(tasks={"three": TaskSeen()}), None, "fitted")
    with pytest.raises(InputError, match="recordings of several tasks"):
        fit_recorded(
            make_world(make_task()), Recorded(tasks={"a": TaskSeen(), "b": TaskSeen()}), None, "fitted"
        )


def test_an_async_task_keeps_its_decode_costs(tmp_path):
    """Rollouts that overlap with training have no stage that could be compared."""
    costs = Costs(decode=(DECODE,), train=TRAIN)
    task = {"coupling": "async", "staleness": 1, "arrangements": ("separate",), "costs": costs}
    base = make_world(make_task(samples=96, **task), hours=1.0)
    true = slower(base, decode=1.4, train=0.8)
    trace = write_trace(tmp_path / "t.jsonl", run_held(true, 1, rollout=[1] * 3, train=[1] * 3))
    fit = fitted(base, [trace])
    assert "overlap with training" in dict(fit.assumed)["rl.costs.decode"]
    assert by_key(fit)["rl.costs.train: × the base's"].value == pytest.approx(0.8, rel=0.04)

"""Figures add up, intervals are of paired seeds, and traces say what happened."""

import json
import math

import msgspec
import pytest
from sim_worlds import DECODE, TRAIN, FixedPlacement, hold, make_task, make_world

from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.figures import References, figures_of, paired
from libra_plan.planner.simulate.record import chrome_trace, json_lines
from libra_plan.planner.simulate.world import Costs

COSTS = Costs(decode=(DECODE,), train=TRAIN, sync_s=1.0)


def small():
    """Make a world that runs in a moment, and its record."""
    world = make_world(make_task(costs=COSTS), gpus=4, hours=0.5)
    placed = hold(world, "rl", shared=True, rollout=[1] * 4, train=[1] * 4)
    return world, run_world(world, FixedPlacement(placed), 0, keep_stages=True)


def test_a_task_alone_in_its_best_form_does_about_its_fair_share():
    """The reference is what the closed form says of this form: worth about 1, the weight of the task."""
    world, record = small()
    figures = figures_of(record, world, References(world))
    assert figures.weighted == pytest.approx(1.0, abs=0.15)
    assert figures.task_rates["rl"] == pytest.approx(figures.weighted, rel=1e-6)


def test_what_was_used_was_held_and_what_was_held_was_there():
    """GPU-seconds that are counted twice would hide idleness."""
    world, record = small()
    busy, held = sum(record.busy_gpu_s.values()), sum(record.held_gpu_s.values())
    assert 0 < busy <= held <= record.gpus * record.hours * 3600.0 + 1e-6
    figures = figures_of(record, world, References(world))
    assert figures.idle >= figures.bubbles - 1e-9


def test_intervals_pair_seeds_and_know_when_there_is_only_one():
    """A ratio that is the same under every seed is certain, however much the seeds differ."""
    world, record = small()
    one = figures_of(record, world, References(world))
    runs = [
        msgspec.structs.replace(one, policy=name, seed=seed, weighted=factor * (seed + 1.0))
        for seed in range(4)
        for name, factor in (("a", 1.2), ("b", 1.0))
    ]
    found = paired(runs, "a", "b")[0]
    assert (found.mean, found.low, found.high) == pytest.approx((1.2, 1.2, 1.2))
    assert found.seeds == 4
    assert paired(runs[:2], "a", "b")[0].low is None
    noisy = [
        msgspec.structs.replace(run, weighted=run.weighted * (1.3 if run.seed == 1 else 1.0))
        for run in runs
        if run.policy == "a"
    ] + [run for run in runs if run.policy == "b"]
    wide = paired(noisy, "a", "b")[0]
    assert wide.low < math.exp((math.log(1.2 * 1.3) + 3 * math.log(1.2)) / 4) < wide.high


def test_traces_hold_every_step_and_stage():
    """What a picture shows must be what was counted."""
    _, record = small()
    lines = [json.loads(line) for line in json_lines(record)]
    kinds = [line["kind"] for line in lines]
    assert kinds[0] == "run"
    assert kinds.count("step") == len(record.steps)
    assert kinds.count("stage") == len(record.stages) > 0
    events = json.loads(chrome_trace(record))["traceEvents"]
    assert sum(event["name"] == "train" for event in events) == len(record.stages)
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")

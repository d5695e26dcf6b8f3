"""What a run leaves behind, as traces and as GPUs over time."""

import json

import pytest
from sim_worlds import DECODE, TRAIN, FixedPlacement, hold, make_task, make_world

from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.record import (
    PlacedSpan,
    RunRecord,
    StageDone,
    bins,
    chrome_trace,
    held,
    json_lines,
    used,
)
from libra_plan.planner.simulate.world import Costs

COSTS = Costs(decode=(DECODE,), train=TRAIN, sync_s=1.0)


def small():
    """Make a world that runs in a moment, and its record."""
    world = make_world(make_task(costs=COSTS), gpus=4, hours=0.5)
    placed = hold(world, "rl", shared=True, rollout=[1] * 4, train=[1] * 4)
    return world, run_world(world, FixedPlacement(placed), 0, keep_stages=True)


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


def test_bins_have_the_mean_of_what_was_held_and_used_in_them():
    """Four GPUs for a quarter of an hour in bins of ten minutes: all of the first, half of the second."""
    record = RunRecord("w", "p", 0, 0.5, 8, arrived_s={"a": 0.0}, keeps_stages=True)
    record.placements.append(
        PlacedSpan("a", 0.0, 900.0, (("train", 4),), (("train", (4,)),), (("train", 4),))
    )
    record.stage(StageDone("a", "train", 300.0, 600.0, 4, 1200.0))
    edges = bins(record, 600.0)
    assert edges.tolist() == [0.0, 600.0, 1200.0, 1800.0]
    assert held(record, edges)[0].gpus.tolist() == [4.0, 2.0, 0.0]
    assert used(record, edges)[0].gpus.tolist() == pytest.approx([1.0, 1.0, 0.0])
    assert record.busy_gpu_s["a", "train"] == 1200.0


def test_stages_are_kept_only_where_traces_are_wanted():
    """A day of a large world has millions."""
    record = RunRecord("w", "p", 0, 0.5, 8)
    record.stage(StageDone("a", "train", 300.0, 600.0, 4, 1200.0))
    assert (record.stages, record.busy_gpu_s["a", "train"]) == ([], 1200.0)

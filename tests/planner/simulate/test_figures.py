"""Every figure of a world that is small enough to be reckoned by hand, and what seeds say of it.

Task a: 8 sequences of 1,000 tokens a step, 1 ms a token; on two GPUs 4 s each, and 1 s to join: 5 s. Task b
is the same on one GPU, 8 s, and arrives at second 10. Starting a task takes 2 s. Each does three steps:
a from 2 to 17, b from 12 to 36. The world has 4 GPUs and 40 s, of which the last 4 nobody works.
"""

import math

import msgspec
import numpy as np
import pytest
from sim_worlds import DECODE, FixedPlacement, hold, make_task, make_world
from sim_worlds import TRAIN as SHORT_TRAIN

from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.figures import References, SeedMean, figures_of, paired, summaries
from libra_plan.planner.simulate.record import bins, held, used
from libra_plan.planner.simulate.world import Costs, DecodeCosts, Drift, Site, SwitchCosts, Training, World
from libra_plan.profiles.schema_workload import LogNormal

MEAN = math.exp(6.9) + 1e-9  # what prices are rounded to, so that hand and closed form mean one length
TRAIN = Training(gpus=1, per_token_s=1e-3, micro_batch_tokens=40_000, all_reduce_s=1.0)


def hand_task(name, costs=None, **more):
    """Make a task of 8 sequences of 992 + 8 tokens."""
    return make_task(
        name,
        samples=8,
        prompts=LogNormal(median_tokens=8.5, sigma=0.0, max_tokens=10),
        responses=Drift(first_mean_tokens=MEAN, sigma=0.0, max_tokens=2000),
        costs=costs or Costs(train=TRAIN),
        **more,
    )


def hand_world(*tasks, seconds):
    """Make a world of four GPUs in which a start takes two seconds."""
    switching = SwitchCosts(
        start_s=(2.0, 2.0, 2.0), save_gib_per_s=(1.0, 1.0, 1.0), load_gib_per_s=(1.0, 1.0, 1.0)
    )
    return World(
        schema_version=1, id="hand", origin="a test", hours=seconds / 3600.0, site=Site(gpus=4), tasks=tasks,
        switching=switching, look_s=10.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def ran():
    """Run the two tasks, and give their world, record and figures."""
    only = {"arrangements": ("colocated",), "steps": 3}
    world = hand_world(
        hand_task("a", **only), hand_task("b", arrives_s=10.0, weight=2.0, **only), seconds=40.0
    )
    fixed = FixedPlacement(hold(world, "a", train=[1, 1]), hold(world, "b", train=[1]), moves_free=False)
    record = run_world(world, fixed, 0, keep_stages=True)
    return world, record, figures_of(record, world, References(world))


def test_work_counts_in_fair_shares(ran):
    """By weight one GPU is due to a, 8 s a step, and 3 to b: 3 sequences on the busiest, joining, 4 s."""
    _, _, figures = ran
    assert figures.task_rates == pytest.approx({"a": 3 * 8 / 17, "b": 3 * 4 / 26})
    assert figures.fairness == pytest.approx(3 * 4 / 26)
    assert figures.weighted == pytest.approx((1 * 3 * 8 + 2 * 3 * 4) / 40)


def test_rates_are_over_the_whole_world(ran):
    """Six steps of eight samples and 8,000 tokens in 40 s."""
    _, _, figures = ran
    assert figures.samples_per_s == pytest.approx(48 / 40)
    assert figures.tokens_per_s == pytest.approx(48_000 / 40)


def test_completion_is_from_arrival(ran):
    """First a takes 17 s, then b 26 s; the last ends at 36."""
    _, _, figures = ran
    assert figures.jct_mean_s == pytest.approx(21.5)
    assert figures.jct_p99_s == pytest.approx(17 + 0.99 * 9)
    assert figures.makespan_s == pytest.approx(36.0)


def test_gpu_seconds_add_up(ran):
    """Two GPUs are held for 15 s and at work, one for 24 s; 4 GPUs were there for 40 s."""
    _, _, figures = ran
    assert figures.bubbles == pytest.approx(0.0, abs=1e-9)
    assert figures.idle == pytest.approx(1 - (30 + 24) / 160)
    assert figures.moves_per_hour == 0.0
    assert figures.lost_gpu_hours == pytest.approx((2 * 2 + 2 * 1) / 3600)


def test_time_series_hold_what_the_figures_hold(ran):
    """In bins of ten seconds, the GPUs held and at work are those of the clock above."""
    _, record, _ = ran
    edges = bins(record, 10.0)
    assert edges.tolist() == pytest.approx([0, 10, 20, 30, 40])
    for bands in (held(record, edges), used(record, edges)):
        assert [(band.task, band.part) for band in bands] == [("a", "train"), ("b", "train")]
        assert bands[0].gpus.tolist() == pytest.approx([1.6, 1.4, 0.0, 0.0])
        assert bands[1].gpus.tolist() == pytest.approx([0.0, 0.8, 1.0, 0.6])


def test_a_stage_that_outlasts_the_world_counts_as_far_as_it_went():
    """At second 20, a is 3 s into a step of 5: 18 s on 2 GPUs are work, not 20."""
    world = hand_world(hand_task("a", arrangements=("colocated",)), seconds=20.0)
    record = run_world(world, FixedPlacement(hold(world, "a", train=[1, 1]), moves_free=False), 0)
    figures = figures_of(record, world, References(world))
    assert figures.idle == pytest.approx(1 - 36 / 80)
    assert figures.jct_mean_s is figures.makespan_s is None


def test_roles_in_turn_are_held_once_and_rollouts_show_between_looks():
    """One GPU rolls out for 124 + 992 × 0.01 s, then trains for 8 s; both roles hold that one GPU."""
    decode = DecodeCosts(
        tp=1, fixed_s=0.01, per_sequence_s=0.0, per_token_s=0.0, kv_tokens=1e5, max_sequences=8
    )
    world = hand_world(hand_task("a", Costs(decode=(decode,), train=TRAIN)), seconds=20.0)
    placed = hold(world, "a", shared=True, rollout=[1], train=[1])
    record = run_world(world, FixedPlacement(placed, moves_free=True), 0, keep_stages=True)
    edges = bins(record, 10.0)
    (together,) = held(record, edges)
    assert (together.part, together.gpus.tolist()) == ("rollout + train", [1.0, 1.0])
    rollout, train = used(record, edges)
    assert rollout.gpus.tolist() == pytest.approx([0.992, 0.208])
    assert train.gpus.tolist() == pytest.approx([0.008, 0.792])


def test_a_task_that_has_not_come_counts_for_nothing():
    """The worst task is the worst of those that are there: who has not come is not starved."""
    world = hand_world(
        hand_task("a", arrangements=("colocated",)),
        hand_task("b", arrangements=("colocated",), arrives_s=1e6),
        seconds=20.0,
    )
    record = run_world(world, FixedPlacement(hold(world, "a", train=[1, 1]), moves_free=False), 0)
    figures = figures_of(record, world, References(world))
    assert set(figures.task_rates) == {"a"}
    assert figures.fairness == figures.task_rates["a"] > 0


def test_intervals_are_students_and_changes_are_paired(ran):
    """Values 1, 2, 3 have mean 2 ± 4.303 / √3; what is 0.5 better under every seed is so for certain."""
    one = ran[2]
    runs = [
        msgspec.structs.replace(one, policy=name, seed=seed, weighted=seed + 1.0 + more, jct_mean_s=jct)
        for seed in range(3)
        for name, more, jct in (("base", 0.0, 10.0 if seed else None), ("new", 0.5, 8.0))
    ]
    found = {(each.policy, each.figure): each for each in summaries(runs, "base")}
    value = found["base", "weighted"].value
    half = 4.302653 / math.sqrt(3)
    assert (value.seeds, value.mean, value.low, value.high) == pytest.approx((3, 2.0, 2.0 - half, 2.0 + half))
    assert found["base", "weighted"].change is None
    assert found["new", "weighted"].change == SeedMean(3, 0.5, 0.5, 0.5)
    assert found["base", "jct_mean_s"].value.seeds == 2
    assert found["new", "jct_mean_s"].change == SeedMean(2, -2.0, -2.0, -2.0)
    assert found["new", "task_rates.a"].change.mean == 0.0
    assert SeedMean.of(np.array([4.0])) == SeedMean(1, 4.0, None, None)


def small():
    """Make a world that runs in a moment, and its record."""
    world = make_world(
        make_task(costs=Costs(decode=(DECODE,), train=SHORT_TRAIN, sync_s=1.0)), gpus=4, hours=0.5
    )
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

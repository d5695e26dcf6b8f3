"""Runs that were recorded once: making the engine faster must not move a step by a microsecond.

They hold on every processor, because draws are rounded before anything is decided on them. Who changes what
is simulated on purpose records them anew: a failing test shows the new figures.
"""

import pytest
from sim_worlds import DECODE, TRAIN, FixedPlacement, Scoring, Tools, hold, make_task, make_world

from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.world import Costs, DecodeCosts, Drift, Failures

RAGGED = type(TRAIN)(
    gpus=1, fixed_s=0.02, per_token_s=2e-5, per_square_s=1e-10, micro_batch_tokens=20_000, all_reduce_s=0.5,
    straggler_sigma=0.1,
)  # fmt: skip
WIDE = DecodeCosts(
    tp=2, fixed_s=0.005, per_sequence_s=6e-5, per_token_s=1e-8, prefill_s_per_token=2e-5, kv_tokens=60_000,
    max_sequences=16,
)  # fmt: skip
ASYNC = {"coupling": "async", "arrangements": ("separate",)}
DRIFT = Drift(first_mean_tokens=500.0, last_mean_tokens=2000.0, steps=60, sigma=0.9, max_tokens=8000)


def sync_apart():
    """Sync, scoring, stragglers, rollouts short of slots and of room, replicas of two sizes."""
    costs = Costs(
        decode=(DECODE, WIDE), train=RAGGED, scoring=(Scoring(id="reference", per_token_s=1e-6),), sync_s=2.0
    )
    world = make_world(make_task(costs=costs, responses=DRIFT))
    return world, hold(world, "rl", rollout=[2, 1, 1], reference=[1], train=[1, 1])


def sync_in_turn():
    """All roles on the same GPUs, tool calls of each replica's own."""
    costs = Costs(decode=(DECODE,), train=RAGGED, wake_s=1.5)
    world = make_world(make_task(costs=costs, turns=3, tools=Tools(mean_s=2.0, sigma=0.7, on_workers=False)))
    return world, hold(world, "rl", shared=True, rollout=[1] * 4, train=[1] * 4)


def async_short_of_workers():
    """Two streaming tasks that share too few workers, scoring, drift, and GPUs that fail."""
    costs = Costs(decode=(WIDE,), train=RAGGED, scoring=(Scoring(id="reward", per_token_s=2e-6),), sync_s=1.0)
    more = {"costs": costs, "turns": 4, "tools": Tools(mean_s=4.0, sigma=0.9), **ASYNC}
    world = make_world(
        make_task("a", responses=DRIFT, staleness=1, **more), make_task("b", staleness=3, samples=96, **more),
        env_workers=40, gpus=16, hours=1.0, failures=Failures(mtbf_hours=6.0, repair_median_s=400.0),
    )  # fmt: skip
    places = {"rollout": [2, 2], "reward": [1], "train": [1, 1]}
    return world, hold(world, "a", **places), hold(world, "b", **places)


RECORDED = {
    "sync_apart": (70, 109311.8675723686, 8219.747889432621, 9966),
    "sync_in_turn": (82, 150957.39896113952, 8974.221012456357, 57680),
    "async_short_of_workers": (107, 186325.54069613712, 25042.228694134094, 115481),
}
"""Steps, Σ of the seconds they ended at, Σ of busy GPU-seconds, events."""


@pytest.mark.parametrize("case", [sync_apart, sync_in_turn, async_short_of_workers])
def test_steps_end_when_they_did_when_recorded(case):
    """Compared to a part in a billion: sums in another order may differ in the last bit, events may not."""
    world, *placed = case()
    record = run_world(world, FixedPlacement(*placed), 7)
    ended = [step.at_s for step in record.steps]
    found = (len(ended), sum(ended), sum(record.busy_gpu_s.values()), record.events)
    assert found == pytest.approx(RECORDED[case.__name__], rel=1e-9)

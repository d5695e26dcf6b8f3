"""Runs whose trajectories are routed: what moves between replicas cost, and that nothing is lost."""

import sys
from pathlib import Path

import msgspec
import pytest
from sim_worlds import DECODE, TRAIN, FixedPlacement, Tools, hold, make_task, make_world

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from routing_rules import Bucket, Routing, routed_by

from libra_plan.planner.simulate.engine import Engine
from libra_plan.planner.simulate.work import DrawnWork
from libra_plan.planner.simulate.world import Costs, Failures, Outcomes

WIDE = type(DECODE)(
    tp=4, fixed_s=0.003, per_sequence_s=5e-5, per_token_s=5e-9, prefill_s_per_token=1e-5, kv_tokens=90_000,
    max_sequences=48,
)  # fmt: skip
SMALL = msgspec.structs.replace(DECODE, kv_tokens=30_000, max_sequences=12, prefill_s_per_token=4e-5)
COSTS = Costs(decode=(SMALL, WIDE), train=TRAIN, sync_s=1.0)
BUCKETS = (Bucket(tp=1, upto_tokens=300), Bucket(tp=4))
ROUTERS = ("emptiest", "mlfq", "c-mlfq", "oracle")


def routed(**more):
    """Make a task with outcomes of its tools."""
    given = {
        "turns": 4,
        "tools": Tools(mean_s=2.0, sigma=0.5, on_workers=False),
        "outcomes": Outcomes(prompts=8, per_prompt=8),
        "costs": COSTS,
    }
    return make_task(**{**given, **more})


def run(task, router="mlfq", seed=0, *, move_s_per_token=0.33 / 40_000, history_epochs=0, **more):
    """Run a world of one task on replicas of two sizes."""
    world = make_world(task, **more)
    routing = Routing(
        router=router, buckets=BUCKETS, move_s_per_token=move_s_per_token, history_epochs=history_epochs
    )
    placed = FixedPlacement(hold(world, "rl", rollout=[1, 1, 4], train=[1]))
    engine = Engine(world, placed, seed, dealer_of=routed_by(routing))
    return engine.run(None), engine.runs["rl"]


@pytest.mark.parametrize("move_s_per_token", [1e-6, 1.0])
def test_a_move_takes_the_time_of_its_tokens_or_of_prefill(move_s_per_token):
    """The first turn on one GPU, the rest on four, between them the move, whichever way is quicker."""
    costs = msgspec.structs.replace(COSTS, train=None)
    task = routed(samples=1, costs=costs, steps=1, mean=2_000.0, sigma=0.0)
    own = DrawnWork(task, 0).step(0).trajectories[0]
    record, state = run(task, move_s_per_token=move_s_per_token)
    turn, part = own.response / 4, own.read / 4
    assert BUCKETS[0].upto_tokens < turn
    at, context = SMALL.prefill_s_per_token * own.prompt, float(own.prompt)
    for number, costs in enumerate((SMALL, WIDE, WIDE, WIDE)):
        if number:
            at += costs.prefill_s_per_token * part
            context += part
        steps_s = costs.fixed_s + costs.per_sequence_s + costs.per_token_s * (context + turn / 2)
        at += turn * steps_s + own.calls_s[number]
        context += turn
        if number == 0:
            at += min(move_s_per_token, WIDE.prefill_s_per_token) * context
    assert record.steps[0].at_s == pytest.approx(at, rel=1e-9)
    assert state.dealer.router.routed.moves == 1


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("coupling", ["sync", "stream", "batches"])
def test_nothing_is_lost_however_trajectories_are_routed(router, coupling):
    """Slots and room that a move leaves behind, or keeps twice, would stop replicas in the end."""
    more = {} if coupling == "sync" else {
        "coupling": "async", "staleness": 1, "arrangements": ("separate",), "rollouts": coupling,
    }  # fmt: skip
    record, state = run(routed(steps=6, samples=48, **more), router, history_epochs=1)
    assert [step.samples for step in record.steps] == [48] * 6
    if coupling == "sync":
        numbers = DrawnWork(state.spec, 0)
        assert [step.tokens for step in record.steps] == [numbers.step(k).lengths.sum() for k in range(6)]
        assert state.dealer.router.routed.ended == 6 * 48
    if router == "mlfq":
        assert state.dealer.router.routed.moves > 0


def test_replicas_are_empty_after_a_batch():
    """What `expect` keeps and `give_up` frees must cancel."""
    task = routed(samples=48, costs=msgspec.structs.replace(COSTS, train=None))
    world = make_world(task, hours=0.2)
    routing = Routing(router="mlfq", buckets=BUCKETS)
    placed = FixedPlacement(hold(world, "rl", rollout=[1, 1, 4]))
    engine = Engine(world, placed, 3, dealer_of=routed_by(routing))
    seen = []

    def look(done):
        seen.append([(each.held, each.reserved) for each in engine.runs["rl"].replicas])
        engine.record.steps.append(done)

    engine.step_done = lambda run, done: look(done)
    engine.run(None)
    assert len(seen) > 3
    assert all(pair == (0, 0) for replicas in seen for pair in replicas)


def test_a_failed_gpu_loses_what_is_on_its_way_only_for_a_while():
    """A trajectory between two replicas must come back once, not twice and not never."""
    task = routed(samples=48, coupling="async", staleness=1, steps=40, arrangements=("separate",))
    record, _ = run(
        task,
        move_s_per_token=0.01,
        failures=Failures(mtbf_hours=1.0, repair_median_s=60.0),
        hours=6.0,
        gpus=8,
        seed=1,
    )
    assert record.failures
    assert [step.samples for step in record.steps] == [48] * 40


def test_large_replicas_shorten_the_tail_more_when_lengths_are_known():
    """The point of routing: the longest trajectories on the fastest replicas end a batch sooner."""
    ends = {
        router: run(routed(samples=48, steps=4, mean=1_200.0, sigma=1.0), router)[0].steps[-1].at_s
        for router in ("emptiest", "oracle")
    }
    assert ends["oracle"] < ends["emptiest"]

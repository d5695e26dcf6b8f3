"""Where closed forms of `models/` are exact the simulator must agree; elsewhere the difference is told."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from affine_profile import AffineProfile, profile_file
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import DECODE, TRAIN, FixedPlacement, Scoring, Tools, hold, make_task, make_world

from libra_plan.models.lengths import LengthSample
from libra_plan.models.pricing.passes import training_cost
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.makespan import Trajectories, makespan_s
from libra_plan.planner.configurations.phases import coupled_time_s
from libra_plan.planner.problem import Coupling, CouplingKind
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.replica import Replica, Trajectory
from libra_plan.planner.simulate.stage_times import rollout_closed_s, stream_closed, train_closed_s
from libra_plan.planner.simulate.work import DrawnWork
from libra_plan.planner.simulate.world import Costs, Training


def run_alone(work, costs, calls_s=()):
    """Run trajectories on one replica to their end, and give the second of the last."""
    replica = Replica(
        "r", 1, costs.coefficients(), costs.max_sequences, costs.kv_tokens, costs.prefill_s_per_token
    )
    for number, (prompt, response) in enumerate(zip(work.prompt_tokens, work.response_tokens, strict=True)):
        own = Trajectory(0, number, int(prompt), int(response), work.turns, calls_s)
        replica.queue.append(own)
    replica.admit()
    while replica.next_s() < np.inf:
        replica.step()
    return replica.now


lengths = st.lists(st.integers(1, 6000), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(lengths, st.integers(1, 70), st.integers(6_500, 60_000))
def test_rollout_without_tools_takes_the_makespan(responses, slots, room):
    """Without tool waits the makespan of list scheduling is exact, whatever limits admission."""
    prompts = [100 + 7 * (number % 9) for number in range(len(responses))]
    work = Trajectories(np.array(prompts), np.array(responses))
    costs = type(DECODE)(
        tp=1, fixed_s=0.01, per_sequence_s=2e-4, per_token_s=3e-8, kv_tokens=room, max_sequences=slots,
        prefill_s_per_token=1e-5,
    )  # fmt: skip
    closed = makespan_s(
        work, costs.coefficients(), Admission(slots, room), 1, costs.prefill_s_per_token * work.prompt_tokens
    )
    assert run_alone(work, costs) == pytest.approx(closed, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(20, 4000), min_size=1, max_size=40), st.integers(1, 6), st.integers(1, 40))
def test_rollout_with_equal_tool_waits_takes_what_the_model_says(responses, turns, slots):
    """With waits all alike the model simulates the same events, so that both must end at one second."""
    work = Trajectories(np.full(len(responses), 300), np.array(responses), turns, 2.5)
    costs = type(DECODE)(
        tp=1, fixed_s=0.01, per_sequence_s=2e-4, per_token_s=3e-8, kv_tokens=90_000, max_sequences=slots
    )
    closed = makespan_s(work, costs.coefficients(), Admission(min(slots, len(responses)), 90_000))
    assert run_alone(work, costs, (2.5,) * turns) == pytest.approx(closed, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 4000), min_size=8, max_size=80), st.integers(1, 8))
def test_training_takes_what_the_training_stage_says(sizes, replicas):
    """Micro-batches without a fixed cost are affine in tokens and squares: the busiest shares are exact."""
    profile = AffineProfile(profile_file("train"), fixed_s=0.0, per_sequence_s=2e-5, per_token_s=1e-9)
    sample = LengthSample(np.sort(np.array(sizes)))
    priced = training_cost(profile, sample, 32_000, replicas)
    costs = Training(gpus=1, per_token_s=2e-5, per_square_s=1e-9, micro_batch_tokens=32_000)
    assert train_closed_s(costs, sample.tokens, replicas) == pytest.approx(priced.time_s.value, rel=1e-9)


def test_a_sync_step_is_the_sum_of_its_closed_forms():
    """Rollout of the batch that was drawn, scoring, training and weights add up, in this order."""
    costs = Costs(
        decode=(DECODE,), train=TRAIN, scoring=(Scoring(id="reference", per_token_s=1e-6),), sync_s=3.0
    )
    world = make_world(make_task(costs=costs))
    task = world.tasks[0]
    placed = hold(world, "rl", rollout=[1, 1, 1], reference=[1], train=[1, 1])
    record = run_world(world, FixedPlacement(placed), seed=4)
    drawn = DrawnWork(task, 4).step(0)
    work = Trajectories(
        np.array([each.prompt for each in drawn.trajectories]),
        np.array([each.response for each in drawn.trajectories]),
    )
    rollout = makespan_s(work, DECODE.coefficients(), Admission(64, 400_000), 3)
    expected = rollout + 1e-6 * drawn.lengths.sum() + train_closed_s(TRAIN, drawn.lengths, 2) + 3.0
    assert record.steps[0].at_s == pytest.approx(expected, rel=1e-9)


def async_world(rollouts, *, sigma=0.8, staleness=1, slots=64, kind="stream", tools=None, train=TRAIN):
    """Make a world of one task that rolls out on GPUs of its own, and place it."""
    decode = msgspec.structs.replace(DECODE, max_sequences=slots)
    costs = Costs(decode=(decode,), train=train, sync_s=1.0)
    more = {"turns": 4, "tools": Tools(mean_s=tools, on_workers=False)} if tools else {}
    task = make_task(
        coupling="async", staleness=staleness, rollouts=kind, arrangements=("separate",), costs=costs,
        sigma=sigma, **more,
    )  # fmt: skip
    world = make_world(task, hours=1.0)
    return world, hold(world, "rl", rollout=[1] * rollouts, train=[1] * (8 - rollouts))


@pytest.mark.parametrize("per_token_s", [2e-5, 5e-3])
def test_batches_one_step_ahead_take_the_longer_of_both_stages(per_token_s):
    """Rollouts that drain beside training: max(makespan, training) + hand-over, but for a decode step."""
    costs = msgspec.structs.replace(TRAIN, per_token_s=per_token_s)
    world, placed = async_world(4, kind="batches", train=costs)
    task, steps = world.tasks[0], run_world(world, FixedPlacement(placed), seed=2).steps
    for before, after in pairwise(steps[2:6]):
        drawn = DrawnWork(task, 2).step(after.step)
        prompts, responses = zip(*((each.prompt, each.response) for each in drawn.trajectories), strict=True)
        work = Trajectories(np.array(prompts), np.array(responses))
        rollout = makespan_s(work, DECODE.coefficients(), Admission(64, 400_000), 4)
        train = train_closed_s(costs, drawn.lengths, 4)
        assert (train > rollout) == (per_token_s > 1e-3)
        assert after.at_s - before.at_s == pytest.approx(max(train, rollout) + 1.0, rel=3e-3)


@pytest.mark.parametrize(
    ("rollouts", "more"),
    [
        (2, {}),
        (6, {}),
        (2, {"sigma": 1.2, "slots": 256}),
        (4, {"sigma": 1.2, "slots": 16}),
        (4, {"staleness": 4, "slots": 256}),
        (6, {"sigma": 0.3, "tools": 5.0}),
        (2, {"sigma": 1.2, "staleness": 2, "tools": 5.0}),
    ],
)
def test_a_stream_keeps_the_pace_that_staleness_allows(rollouts, more):
    """The steady rate is no exact form: with tails, waits and bounds it must be near; by how much is told."""
    world, placed = async_world(rollouts, **more)
    task, steps = world.tasks[0], run_world(world, FixedPlacement(placed), seed=2).steps
    seconds = (steps[-1].at_s - steps[9].at_s) / (len(steps) - 10)
    (decode,) = task.costs.decode
    train = train_closed_s(TRAIN, DrawnWork(task, 2).step(0).lengths, 8 - rollouts)
    rollout = rollout_closed_s(task, decode, 800.0, rollouts, drains=False)
    pools = [(rollout, stream_closed(task, decode, 800.0, rollouts)), (train, None)]
    closed = coupled_time_s(pools, Coupling(CouplingKind.ASYNC, task.staleness)) + 1.0
    print(f"async {rollouts}:{8 - rollouts} {more}: simulated {seconds:.2f} s, closed form {closed:.2f} s")
    assert seconds == pytest.approx(closed, rel=0.15)

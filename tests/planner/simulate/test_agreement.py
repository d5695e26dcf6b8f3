"""Where closed forms of `models/` are exact the simulator must agree; elsewhere the difference is told."""

import numpy as np
import pytest
from affine_profile import AffineProfile, profile_file
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_worlds import DECODE, TRAIN, Fixed, Scoring, Tools, hold, make_task, make_world

from libra_plan.models.admission import Admission
from libra_plan.models.lengths import LengthSample
from libra_plan.models.rollout import Trajectories, makespan_s
from libra_plan.models.training_stage import training_cost
from libra_plan.planner.simulate.engine import simulate
from libra_plan.planner.simulate.replica import Replica, Trajectory
from libra_plan.planner.simulate.stages import rollout_closed_s, train_closed_s
from libra_plan.planner.simulate.work import Work
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
    record = simulate(world, Fixed(placed), seed=4)
    drawn = Work(task, 4).step(0)
    work = Trajectories(
        np.array([each.prompt for each in drawn.trajectories]),
        np.array([each.response for each in drawn.trajectories]),
    )
    rollout = makespan_s(work, DECODE.coefficients(), Admission(64, 400_000), 3)
    expected = rollout + 1e-6 * drawn.lengths.sum() + train_closed_s(TRAIN, drawn.lengths, 2) + 3.0
    assert record.steps[0].at_s == pytest.approx(expected, rel=1e-9)


def test_colocated_roles_wake_up_in_turn():
    """Roles on the same GPUs pay for waking up once each, and hand over no weights."""
    costs = Costs(decode=(DECODE,), train=TRAIN, sync_s=50.0, wake_s=2.0)
    world = make_world(make_task(costs=costs))
    apart = simulate(world, Fixed(hold(world, "rl", rollout=[1, 1], train=[1, 1])), seed=1).steps[0].at_s
    together = simulate(world, Fixed(hold(world, "rl", shared=True, rollout=[1, 1], train=[1, 1])), seed=1)
    assert together.steps[0].at_s == pytest.approx(apart - 50.0 + 4.0, rel=1e-9)


@pytest.mark.parametrize(("rollouts", "trainers"), [(2, 6), (6, 2)])
def test_an_async_task_keeps_the_pace_of_its_slower_side(rollouts, trainers):
    """The steady rate is no exact form (tails, staleness): it must be near, and is told by how much."""
    costs = Costs(decode=(DECODE,), train=TRAIN, sync_s=1.0)
    task = make_task(coupling="async", staleness=1, arrangements=("separate",), costs=costs)
    world = make_world(task, hours=2.0)
    placed = hold(world, "rl", rollout=[1] * rollouts, train=[1] * trainers)
    record = simulate(world, Fixed(placed), seed=2)
    seconds = (record.steps[-1].at_s - record.steps[9].at_s) / (len(record.steps) - 10)
    sample = Work(task, 2).step(0).lengths
    closed = (
        max(
            rollout_closed_s(task, DECODE, 800.0, rollouts, drains=False),
            train_closed_s(TRAIN, sample, trainers),
        )
        + 1.0
    )
    print(f"async {rollouts}:{trainers}: simulated {seconds:.2f} s, closed form {closed:.2f} s")
    assert seconds == pytest.approx(closed, rel=0.25)


def test_no_tool_runs_longer_for_being_on_a_free_worker():
    """Workers that are never short must change nothing."""
    tools = {"mean_s": 3.0, "sigma": 0.5}
    free = make_task(turns=4, tools=Tools(**tools, on_workers=False))
    shared = make_task(turns=4, tools=Tools(**tools))
    ends = []
    for task in (free, shared):
        world = make_world(task, env_workers=10_000)
        ends.append(
            simulate(world, Fixed(hold(world, "rl", rollout=[1, 1], train=[1])), seed=3).steps[0].at_s
        )
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)

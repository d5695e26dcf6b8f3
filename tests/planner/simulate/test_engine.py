"""The engine: same seed, same run; bounds that hold; failures, workers, moves."""

from itertools import pairwise
from statistics import mean

from sim_worlds import DECODE, TRAIN, FixedPlacement, Tools, hold, make_task, make_world

from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.world import Costs, Failures

COSTS = Costs(decode=(DECODE,), train=TRAIN, sync_s=1.0, weights_gib=2.0, state_gib=10.0)


def run(world, *placed, seed=0, **more):
    """Run a world with these placements."""
    return run_world(world, FixedPlacement(*placed, **more), seed)


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    """Paired seeds compare policies only if nothing else is drawn."""
    world = make_world(make_task(costs=COSTS), failures=Failures(mtbf_hours=4.0, repair_median_s=300.0))
    placed = hold(world, "rl", rollout=[1, 1], train=[1])
    first, again, other = (run(world, placed, seed=seed).steps for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_work_of_a_step_does_not_depend_on_the_policy():
    """Two placements must meet the same trajectories, or their difference is luck."""
    world = make_world(make_task(costs=COSTS))
    few = run(world, hold(world, "rl", rollout=[1], train=[1])).steps
    many = run(world, hold(world, "rl", rollout=[1] * 4, train=[1])).steps
    assert [step.tokens for step in few] == [step.tokens for step in many[: len(few)]]
    assert len(many) > len(few)


def test_a_larger_replica_makes_the_tail_shorter():
    """Replicas of different sizes must decode at their own speed."""
    wide = type(DECODE)(
        tp=4, fixed_s=0.002, per_sequence_s=3e-5, per_token_s=5e-9, kv_tokens=2_000_000, max_sequences=256
    )
    task = make_task(costs=Costs(decode=(DECODE, wide), train=TRAIN))
    world = make_world(task)
    narrow = run(world, hold(world, "rl", rollout=[1, 1, 1, 1], train=[1])).steps
    mixed = run(world, hold(world, "rl", rollout=[4, 1, 1], train=[1])).steps
    assert mixed[0].at_s < narrow[0].at_s


def test_short_cpu_workers_slow_every_task_that_calls_tools():
    """Workers are one resource of the site: a second task's calls must delay the first one's."""
    tools = Tools(mean_s=20.0, sigma=0.3)
    first, second = (make_task(name, costs=COSTS, turns=3, tools=tools) for name in ("a", "b"))
    alone = make_world(first, env_workers=24)
    both = make_world(first, second, env_workers=24)
    place = [hold(both, name, rollout=[1, 1], train=[1]) for name in ("a", "b")]
    lonely = [step.at_s for step in run(alone, place[0]).steps]
    shared = [step.at_s for step in run(both, *place).steps if step.task == "a"]
    assert shared[0] > 1.5 * lonely[0]


def test_a_failed_gpu_stops_its_task_until_it_is_repaired():
    """A placement that never moves must lose the repair time, and finish steps after it."""
    world = make_world(
        make_task(costs=COSTS), gpus=2, hours=8.0, failures=Failures(mtbf_hours=3.0, repair_median_s=1800.0)
    )
    placed = hold(world, "rl", rollout=[1], train=[1])
    record = run(world, placed, seed=3)
    assert record.failures
    at, _, repair = min(record.failures)
    assert not [step for step in record.steps if at < step.at_s < at + repair]
    assert [step for step in record.steps if step.at_s > at + repair]


def test_stragglers_make_steps_longer_the_more_replicas_there_are():
    """The slowest of many is slower than the slowest of few, at equal work each."""
    ragged = type(TRAIN)(gpus=1, per_token_s=2e-3, micro_batch_tokens=40_000, straggler_sigma=0.3)

    def seconds(replicas):
        task = make_task(
            samples=8 * replicas, costs=Costs(train=ragged), arrangements=("colocated",), sigma=0.0
        )
        steps = run(make_world(task, hours=8.0), hold(make_world(task), "rl", train=[1] * replicas)).steps
        return mean(after.at_s - before.at_s for before, after in pairwise(steps))

    assert seconds(8) > 1.15 * seconds(1)


def test_tasks_arrive_and_leave():
    """A task counts from its arrival to its last step."""
    late = make_task("late", costs=COSTS, arrives_s=1000.0, steps=3)
    world = make_world(make_task("rl", costs=COSTS), late)
    places = [hold(world, "rl", rollout=[1], train=[1]), hold(world, "late", rollout=[1, 1], train=[1])]
    record = run_world(world, FixedPlacement(places[0], places[1]), 0)
    mine = [step for step in record.steps if step.task == "late"]
    assert len(mine) == 3
    assert record.arrived_s["late"] == 1000.0
    assert record.finished_s["late"] == mine[-1].at_s

"""One task: what it begins, when roles wake up, and what its tools wait for."""

import msgspec
import pytest
from sim_worlds import DECODE, TRAIN, FixedPlacement, Tools, hold, make_task, make_world

from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.task import TaskRun
from libra_plan.planner.simulate.world import Costs


def run(world, *placed, seed=0):
    """Run a world with these placements."""
    return run_world(world, FixedPlacement(*placed), seed)


@pytest.mark.parametrize("staleness", [1, 2])
@pytest.mark.parametrize("rollouts", ["stream", "batches"])
def test_no_more_is_begun_than_staleness_allows(staleness, rollouts, monkeypatch):
    """The bound holds where a trajectory begins (as AReaL counts); with slow training it is reached."""
    slow = Costs(decode=(DECODE,), train=msgspec.structs.replace(TRAIN, per_token_s=4e-3), sync_s=1.0)
    task = make_task(
        coupling="async",
        staleness=staleness,
        rollouts=rollouts,
        arrangements=("separate",),
        costs=slow,
        sigma=1.2,
    )
    most, begin = 0, TaskRun._begin_on

    def spied(own, replica, trajectory):
        nonlocal most
        begin(own, replica, trajectory)
        most = max(most, own._flying + len(own._ready) + len(own._batch))

    monkeypatch.setattr(TaskRun, "_begin_on", spied)
    world = make_world(task)
    steps = run(world, hold(world, "rl", rollout=[1, 1], train=[1, 1])).steps
    assert most == (1 + staleness) * task.samples
    if rollouts == "batches":  # each is trained on in its turn: none is older than the bound
        assert max(step.stale for step in steps) == staleness


def test_colocated_roles_wake_up_in_turn():
    """Roles on the same GPUs pay for waking up once each, and hand over no weights."""
    costs = Costs(decode=(DECODE,), train=TRAIN, sync_s=50.0, wake_s=2.0)
    world = make_world(make_task(costs=costs))
    apart = (
        run_world(world, FixedPlacement(hold(world, "rl", rollout=[1, 1], train=[1, 1])), seed=1)
        .steps[0]
        .at_s
    )
    together = run_world(
        world, FixedPlacement(hold(world, "rl", shared=True, rollout=[1, 1], train=[1, 1])), seed=1
    )
    assert together.steps[0].at_s == pytest.approx(apart - 50.0 + 4.0, rel=1e-9)


def test_no_tool_runs_longer_for_being_on_a_free_worker():
    """Workers that are never short must change nothing."""
    tools = {"mean_s": 3.0, "sigma": 0.5}
    free = make_task(turns=4, tools=Tools(**tools, on_workers=False))
    shared = make_task(turns=4, tools=Tools(**tools))
    ends = []
    for task in (free, shared):
        world = make_world(task, env_workers=10_000)
        ends.append(
            run_world(world, FixedPlacement(hold(world, "rl", rollout=[1, 1], train=[1])), seed=3)
            .steps[0]
            .at_s
        )
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)

"""Prices as planners believe them: true without an error, off by one factor a role with it, and kept."""

import math

import numpy as np
import pytest
from sim_worlds import DECODE, TRAIN, Scoring, make_task, make_world

from libra_plan.models.quantities import Estimate, Origin, exactly
from libra_plan.planner.simulate.noisy_cost_model import NoisyCosts
from libra_plan.planner.simulate.stage_times import rollout_closed_s, train_closed_s
from libra_plan.planner.simulate.world import Costs, world_cluster

MEAN = math.exp(round(math.log(800.0) / 0.02) * 0.02)  # what 800 tokens are priced as
COSTS = Costs(
    decode=(DECODE,),
    train=TRAIN,
    scoring=(Scoring(id="reference", gpus=2, per_token_s=1e-6),),
    state_gib=10.0,
)


def task_of(world, rng=None, mean=800.0, **more):
    """Price the only task of a world."""
    found = NoisyCosts(world, rng, **more)
    mean = mean if isinstance(mean, Estimate) else exactly(mean, "tokens", Origin.MEASURED)
    return found.problem(world_cluster(world), {"rl": mean}, ["rl"]).tasks[0]


def times(task):
    """List the seconds of every option by role and replicas."""
    return {(role.id, o.replicas): o.time_s.value for role in task.roles for o in role.options}


def test_true_costs_are_the_closed_forms():
    """Who plans with true costs must be told what the models say, to the last role."""
    world = make_world(make_task(costs=COSTS))
    task, spec = task_of(world), world.tasks[0]
    found = times(task)
    closed = rollout_closed_s(spec, DECODE, MEAN, 2, drains=True)
    assert found["rollout", 2] == pytest.approx(closed, rel=1e-11)
    assert found["reference", 2] == pytest.approx(found["reference", 1] / 2)
    assert found["train", 4] < found["train", 1]
    assert all(o.time_s.low == o.time_s.high for role in task.roles for o in role.options)


def test_an_error_is_one_factor_a_role_and_bounds_hold_it():
    """A model that is off is off alike at every number of replicas, and says how far it may be."""
    world = make_world(make_task(costs=COSTS), model_error=0.2)
    true, estimated = task_of(world), task_of(world, np.random.default_rng(3))
    ratios = {}
    for key, seconds in times(estimated).items():
        ratios.setdefault(key[0], set()).add(round(seconds / times(true)[key], 9))
    assert all(len(each) == 1 for each in ratios.values())
    assert len({next(iter(each)) for each in ratios.values()}) == 3
    for role in estimated.roles:
        for option in role.options:
            assert option.time_s.low < option.time_s.value < option.time_s.high


def test_moves_cost_their_slow_cases_or_nothing():
    """A clairvoyant moves for nothing; everybody else must count with a slow start, save and load."""
    world = make_world(make_task(costs=COSTS), free=False)
    assert task_of(world).restart_s == pytest.approx((7.335 + 8.32) / 2 + 10 / 0.68365 + 10 / 3.815, rel=1e-3)
    assert task_of(world, moves_free=True).restart_s == 0.0


def test_doubt_about_lengths_widens_rollouts_alone():
    """Training of a length that is not sure is no more sure; but only rollouts hang on the longest."""
    world = make_world(make_task(costs=COSTS))
    doubtful = task_of(world, mean=Estimate(800.0, 600.0, 1200.0, "tokens", Origin.EXTRAPOLATED))
    rollout, _, train = doubtful.roles
    assert rollout.options[0].time_s.high == pytest.approx(1.5 * rollout.options[0].time_s.value)
    assert rollout.options[0].time_s.low == pytest.approx(0.75 * rollout.options[0].time_s.value)
    assert train.options[0].time_s.low == train.options[0].time_s.high


def test_prices_have_twelve_digits():
    """A last bit that differs between processors could decide between two plans."""
    world = make_world(make_task(costs=COSTS), model_error=0.2)
    for seconds in times(task_of(world, np.random.default_rng(1))).values():
        assert seconds == float(f"{seconds:.12g}")
    assert train_closed_s(TRAIN, np.array([100, 200]), 1) > 0

"""The bound: no run exceeds it, whatever the policy; and it says something where work is all that counts."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sim_worlds import DECODE, TRAIN, FixedPlacement, Scoring, Tools, hold, make_task, make_world

from libra_plan.planner.simulate.bound import upper_bound
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.figures import References, figures_of
from libra_plan.planner.simulate.policies import make_policy
from libra_plan.planner.simulate.world import Costs, Drift, Failures

WIDE = type(DECODE)(
    tp=2, fixed_s=0.004, per_sequence_s=6e-5, per_token_s=1e-8, prefill_s_per_token=1e-4, kv_tokens=60_000,
    max_sequences=32,
)  # fmt: skip
RAGGED = type(TRAIN)(
    gpus=1, fixed_s=0.05, per_token_s=1e-4, per_square_s=1e-9, micro_batch_tokens=9_000, all_reduce_s=0.5,
    straggler_sigma=0.3,
)  # fmt: skip
COSTS = Costs(decode=(DECODE, WIDE), train=RAGGED, sync_s=1.0, weights_gib=2.0, state_gib=10.0, wake_s=2.0)


def share_of_bound(world, policy, seed):
    """Return the figure of a run over the bound of its world and seed."""
    references = References(world)
    figures = figures_of(run_world(world, policy, seed), world, references)
    return figures.weighted / upper_bound(world, seed, references)


@st.composite
def cases(draw):
    """Draw a world of one or two tasks, placements, and a seed."""
    worlds, places = [], []
    for name in ("a", "b")[: draw(st.integers(1, 2))]:
        trains, scored = draw(st.booleans()), draw(st.booleans())
        asynchronous = draw(st.booleans())
        scoring = (Scoring(id="judge", per_token_s=2e-5),) if scored else ()
        costs = Costs(
            decode=(DECODE, WIDE),
            train=RAGGED if trains or asynchronous else None,
            scoring=scoring,
            sync_s=1.0,
        )
        more = {"coupling": "async", "staleness": draw(st.integers(1, 3)), "arrangements": ("separate",)}
        more["rollouts"] = draw(st.sampled_from(["stream", "batches"]))
        task = make_task(
            name,
            mean=draw(st.sampled_from([400.0, 1500.0])),
            sigma=draw(st.sampled_from([0.1, 1.0])),
            samples=draw(st.sampled_from([16, 64])),
            turns=draw(st.integers(1, 3)),
            tools=Tools(mean_s=3.0, sigma=0.5, on_workers=False) if draw(st.booleans()) else None,
            costs=costs,
            arrives_s=draw(st.sampled_from([0.0, 100.0])),
            **(more if asynchronous else {}),
        )
        worlds.append(task)
        roles = {"rollout": draw(st.sampled_from([[1], [2], [1, 1]]))}
        roles |= {"judge": [1]} if scored else {}
        roles |= {"train": [1]} if costs.train else {}
        places.append(roles)
    world = make_world(*worlds, gpus=10, hours=0.1)
    return world, [hold(world, t.id, **roles) for t, roles in zip(worlds, places, strict=True)]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(), st.integers(0, 5))
def test_no_placement_exceeds_the_bound(case, seed):
    """A bound that one run breaks is none: sync and async, tools, scoring, two sizes of replicas."""
    world, places = case
    assert share_of_bound(world, FixedPlacement(*places), seed) <= 1.0 + 1e-9


@pytest.mark.parametrize("name", ["best-static", "libra", "ours", "clairvoyant"])
def test_no_policy_exceeds_the_bound_on_a_small_cluster(name):
    """Free moves and true costs are no way around it; drift, failures and arrivals included."""
    drift = Drift(first_mean_tokens=500.0, last_mean_tokens=1500.0, steps=30, sigma=0.8, max_tokens=8000)
    given = {"coupling": "async", "staleness": 1, "arrangements": ("separate",), "costs": COSTS}
    trains = make_task("trains", arrives_s=300.0, samples=512, costs=Costs(train=RAGGED, state_gib=5.0))
    world = make_world(
        make_task("a", responses=drift, **given), make_task("b", costs=COSTS), trains, hours=0.3, free=False,
        look_s=120.0, failures=Failures(mtbf_hours=4.0, repair_median_s=300.0),
    )  # fmt: skip
    assert 0.0 < share_of_bound(world, make_policy(name), 1) <= 1.0


def test_the_bound_is_met_where_training_is_all_there_is():
    """No tails, no stragglers, no moves: a bound far above what is done would say nothing."""
    trains = make_task("trains", samples=64, sigma=0.1, costs=Costs(train=TRAIN), arrangements=("colocated",))
    world = make_world(trains, gpus=4, hours=0.1)
    assert share_of_bound(world, FixedPlacement(hold(world, "trains", train=[1, 1, 1, 1])), 0) > 0.97


def test_failures_take_their_part_of_the_bound():
    """What GPUs that failed could have done is within nobody's reach."""
    trains = make_task("trains", samples=512, costs=Costs(train=RAGGED), arrangements=("colocated",))
    sound = make_world(trains, hours=2.0)
    broken = make_world(trains, hours=2.0, failures=Failures(mtbf_hours=2.0, repair_median_s=3600.0))
    most, less = (upper_bound(world, 0, References(world)) for world in (sound, broken))
    assert less < 0.9 * most

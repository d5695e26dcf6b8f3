"""Every policy keeps the protocol: valid placements, on GPUs that work, in any world."""

import pytest
from sim_worlds import DECODE, TRAIN, make_task, make_world

from libra_plan.errors import InputError
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.policies import POLICIES, make_policy
from libra_plan.planner.simulate.world import Costs, Drift, Failures

COSTS = Costs(decode=(DECODE,), train=TRAIN, sync_s=1.0, weights_gib=2.0, state_gib=10.0)


def busy_world(**more):
    """Make two streaming tasks, one that drifts, and a training that arrives and leaves; GPUs fail."""
    drift = Drift(first_mean_tokens=500.0, last_mean_tokens=2500.0, steps=60, sigma=0.8, max_tokens=8000)
    streaming = {"coupling": "async", "staleness": 1, "arrangements": ("separate",), "costs": COSTS}
    given_trains = {"costs": Costs(train=TRAIN, state_gib=5.0), "arrangements": ("colocated",)}
    trains = make_task("trains", arrives_s=600.0, steps=20, samples=256, **given_trains)
    given = {
        "hours": 0.5,
        "free": False,
        "model_error": 0.08,
        "failures": Failures(mtbf_hours=4.0, repair_median_s=600.0),
        "look_s": 150.0,
        **more,
    }
    return make_world(
        make_task("a", responses=drift, **streaming), make_task("b", **streaming), trains, **given
    )


class Checked:
    """Check what a policy wants, and pass it on."""

    def __init__(self, policy):
        self.policy, self.name = policy, policy.name
        self.moves_free, self.elastic = policy.moves_free, policy.elastic

    def decide(self, view):
        wanted = self.policy.decide(view)
        assert len({held.task for held in wanted or ()}) == len(wanted or ())
        used = set()
        for held in wanted or ():
            groups = {}
            for role in held.roles:
                own = {gpu for replica in role.replicas for gpu in replica}
                assert own <= set(view.cluster.gpus), "on GPUs that do not work"
                groups.setdefault(role.share_group, set()).update(own)
            for own in groups.values():
                assert not used & own, "two pools on one GPU"
                used |= own
        return wanted


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_places_tasks_validly_and_gets_work_done(name):
    """A comparison is void if one side uses a GPU twice, or one that failed."""
    record = run_world(busy_world(), Checked(make_policy(name)), 1)
    done = [step.task for step in record.steps]
    assert min(done.count("a"), done.count("b")) > 3


@pytest.mark.parametrize("name", ["ours", "libra", "rule-based", "sia-like"])
def test_deciding_is_deterministic(name):
    """A run that cannot be repeated proves nothing."""
    world = busy_world(hours=0.25)
    first, again = (run_world(world, make_policy(name), 2).steps for _ in range(2))
    assert first == again


def test_ours_moves_nothing_where_there_is_nothing_to_gain():
    """Two tasks that are alike, exact models: whatever it moved would be lost."""
    streaming = {"coupling": "async", "staleness": 1, "arrangements": ("separate",), "costs": COSTS}
    world = make_world(make_task("a", **streaming), make_task("b", **streaming), free=False, hours=1.0)
    record = run_world(world, make_policy("ours"), 0)
    assert [change.why for change in record.changes] == ["start", "start"]


def test_a_wrong_name_is_refused_with_the_right_ones():
    """A typing error must not end in a traceback."""
    with pytest.raises(InputError, match="no such policy"):
        make_policy("best")

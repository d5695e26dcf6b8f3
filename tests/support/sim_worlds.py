"""Small worlds for tests of the simulator."""

from libra_plan.planner.simulate.noisy_cost_model import NoisyCosts
from libra_plan.planner.simulate.policy import FixedPlacement, TaskView, View, hold
from libra_plan.planner.simulate.world import (
    Costs,
    DecodeCosts,
    Drift,
    Scoring,
    Site,
    SwitchCosts,
    Tools,
    Training,
    World,
    WorldTask,
    world_cluster,
)
from libra_plan.profiles.schema_workload import LogNormal

DECODE = DecodeCosts(
    tp=1, fixed_s=0.008, per_sequence_s=1e-4, per_token_s=2e-8, kv_tokens=400_000, max_sequences=64
)
TRAIN = Training(gpus=1, per_token_s=2e-5, per_square_s=1e-10, micro_batch_tokens=40_000)


def make_task(name="rl", *, mean=800.0, sigma=0.8, **more):
    """Make a task: rollout, then training, sync, unless told otherwise."""
    given = {
        "samples": 64,
        "prompts": LogNormal(median_tokens=200.0, sigma=0.3, max_tokens=1000),
        "responses": Drift(first_mean_tokens=mean, sigma=sigma, max_tokens=8000),
        "costs": Costs(decode=(DECODE,), train=TRAIN),
    }
    return WorldTask(id=name, **{**given, **more})


def make_world(*tasks, gpus=8, hours=1.0, free=True, **more):
    """Make a world; `free`: moves take no time."""
    start = (0.0, 0.0, 0.0) if free else (7.05, 7.335, 8.32)
    switching = SwitchCosts(
        start_s=start, save_gib_per_s=(0.6106, 0.7567, 0.9028), load_gib_per_s=(3.6953, 3.9346, 4.1739)
    )
    site = Site(gpus=gpus, gpus_per_node=8, env_workers=more.pop("env_workers", None))
    given = {"id": "small", "origin": "a test", "hours": hours, **more}
    return World(schema_version=1, site=site, tasks=tasks, switching=switching, **given)


def make_view(world, *tasks, running=(), broken=(), now_s=0.0, urgent=False, cluster=None):
    """Make the moment a policy decides in; models are exact."""
    costs = NoisyCosts(world)
    whole = world_cluster(world) if cluster is None else cluster
    return View(now_s, world, whole, tasks, tuple(running), tuple(broken), costs, costs, urgent)


def make_seen(name="rl", *, means=(), seen_s=None, queue=None, busy=None, since=0):
    """Make what is known of a task."""
    return TaskView(name, len(means), since, tuple(means), seen_s or {}, queue, busy or {})


__all__ = [
    "DECODE",
    "TRAIN",
    "FixedPlacement",
    "Scoring",
    "Tools",
    "hold",
    "make_seen",
    "make_task",
    "make_view",
    "make_world",
]

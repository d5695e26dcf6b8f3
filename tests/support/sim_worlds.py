"""Small worlds for tests of the simulator."""

from libra_plan.planner.simulate.policy import FixedPlacement, hold
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


__all__ = ["DECODE", "TRAIN", "FixedPlacement", "Scoring", "Tools", "hold", "make_task", "make_world"]

"""Small worlds for tests of the simulator."""

from libra_plan.models.parallelism import Layout
from libra_plan.planner.problem import HeldRole, HeldTask
from libra_plan.planner.simulate.believed import world_cluster
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


def hold(world, task, /, *, shared=False, **replicas):
    """Place roles on the first free GPUs: `rollout=[1, 1]` are two replicas of one GPU each."""
    gpus, at, roles = list(world_cluster(world).gpus), 0, []
    if task != world.tasks[0].id:
        gpus.reverse()  # two tasks: from both ends
    for role, sizes in replicas.items():
        at = 0 if shared else at
        made = []
        for size in sizes:
            made.append(tuple(gpus[at : at + size]))
            at += size
        mix = tuple(Layout(tp=size) for size in sizes) if len(set(sizes)) > 1 else ()
        roles.append(HeldRole(role, Layout(tp=max(sizes)), tuple(made), "pool" if shared else role, mix))
    return HeldTask(task, tuple(roles))


class Fixed:
    """Keep what is given, from the first look on."""

    name = "fixed"

    def __init__(self, *placed, moves_free=True):
        self.placed, self.moves_free = placed, moves_free

    def decide(self, view):
        alive = set(view.cluster.gpus)
        return tuple(
            held
            for held in self.placed
            if held.task in {task.id for task in view.tasks}
            and all(gpu in alive for role in held.roles for replica in role.replicas for gpu in replica)
        )


__all__ = ["DECODE", "TRAIN", "Fixed", "Scoring", "Tools", "hold", "make_task", "make_world"]

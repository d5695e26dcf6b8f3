"""Ten manifests for the launchers: the three golden cases and seven more, each with a reason."""

from __future__ import annotations

from plans import CASES, cluster, manifest_of, role, running, span

from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.plan import CpuShare, MemoryMode
from libra_plan.planner.problem import Coupling, CouplingKind
from libra_plan.profiles.schema import LifecycleSpec

ASYNC = Coupling(CouplingKind.ASYNC, staleness=2, batches=True)


def one_by_one(*nodes: tuple[str, int, int]) -> list[list[str]]:
    """Make replicas of one GPU."""
    return [[gpu] for name, first, count in nodes for gpu in span(name, first, count)]


def shared_all() -> Manifest:
    """Let actor, rollout and reference take all eight GPUs of a node in turn, asleep meanwhile."""
    everyone = one_by_one(("n0", 0, 8))
    roles = [role("actor", everyone), role("rollout", everyone), role("reference", everyone)]
    return manifest_of(cluster(8), running("grpo", roles, memory_mode=MemoryMode.SLEEP))


def ahead(coupling: Coupling = ASYNC) -> Manifest:
    """Roll out on other GPUs, two policy versions ahead of training."""
    task = running(
        "ahead",
        [role("actor", one_by_one(("n0", 0, 4)))],
        [role("rollout", [span("n0", 4, 2), span("n0", 6, 2)], tp=2)],
    )
    lifecycle = LifecycleSpec(grace_s=300.0, checkpoint_dir="/checkpoints/ahead")
    return manifest_of(cluster(8), task, coupling=coupling, lifecycle=lifecycle)


def whole_nodes() -> Manifest:
    """Train on two whole nodes and roll out on a third, asynchronously."""
    task = running(
        "wide",
        [role("actor", one_by_one(("n0", 0, 8), ("n1", 0, 8)))],
        [role("rollout", [span("n2", first, 2) for first in range(0, 8, 2)], tp=2)],
    )
    return manifest_of(cluster(8, 8, 8), task, coupling=ASYNC)


def ppo() -> Manifest:
    """Colocate actor, rollout, reference and critic, with the reward model on GPUs of its own."""
    everyone = one_by_one(("n0", 0, 4))
    together = [role(name, everyone) for name in ("actor", "rollout", "reference", "critic")]
    task = running("ppo", together, [role("reward", one_by_one(("n0", 4, 4)))], memory_mode=MemoryMode.SLEEP)
    return manifest_of(cluster(8), task)


def unequal() -> Manifest:
    """Train on nodes with unequal numbers of GPUs."""
    task = running(
        "unequal",
        [role("actor", one_by_one(("n0", 0, 8), ("n1", 0, 2)))],
        [role("rollout", [span("n1", 2, 2)], tp=2)],
    )
    return manifest_of(cluster(8, 4), task, coupling=ASYNC)


def gaps() -> Manifest:
    """Return two tasks GPUs of one node that are not side by side, the rollout before the actor."""
    first = running(
        "first", [role("actor", [["n0:5"], ["n0:7"]])], [role("rollout", [["n0:0", "n0:2"]], tp=2)]
    )
    second = running("second", [role("actor", [["n0:1"]])], [role("rollout", [["n0:3"]])])
    return manifest_of(cluster(8), first, second, coupling=ASYNC)


def judged() -> Manifest:
    """Use what frameworks have no part for: a judge, and environments with a command of their own."""
    task = running(
        "judged",
        [role("actor", one_by_one(("n0", 0, 4)))],
        [role("rollout", one_by_one(("n0", 4, 2)))],
        [role("judge", [["n0:6", "n0:7"]], tp=2)],
        cpu=[CpuShare("env", "n0", 8)],
    )
    return manifest_of(cluster(8), task, coupling=ASYNC)


TEN = {
    **CASES,
    "shared-all": shared_all,
    "ahead": ahead,
    "whole-nodes": whole_nodes,
    "ppo": ppo,
    "unequal": unequal,
    "gaps": gaps,
    "judged": judged,
}

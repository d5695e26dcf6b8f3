"""Emit slime: arguments over a Ray cluster per task, and a file of engine groups.

slime sorts the GPUs it sees by node address and index; the first ones train and the rest roll out,
so exact GPUs can be said as long as the plan has them in that order. Reference and critic live in
the actor's processes. It does not check that the nodes are equal.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field

from libra_plan.planner.launchers.base import Ability
from libra_plan.planner.launchers.framework import HERE, FrameworkOptions, Translation, emit_framework
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry
from libra_plan.planner.launchers.role_mapping import Cast, colocated, only
from libra_plan.planner.launchers.shapes import gpus_on, shape_of, task_nodes, width
from libra_plan.planner.launchers.shell import to_yaml

__all__ = ["EMITTER", "Slime"]


@dataclass(frozen=True)
class Slime:
    """The slime emitter."""

    options: FrameworkOptions = field(default_factory=FrameworkOptions)
    name: str = "slime"
    abilities: frozenset[Ability] = frozenset(
        {Ability.GPU_IDS, Ability.MULTI_NODE, Ability.SHARED_GPUS, Ability.CPU_ROLES}
    )
    versions: tuple[str, ...] = ("624b824a", "002fa9d6")

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Write `TASK/slime.sh`, `sglang.yaml` and the scripts of the task's Ray cluster."""
        return emit_framework(self, manifest, self.options, _translate)


EMITTER = Slime()


def _translate(manifest: Manifest, cast: Cast, reasons: list[str]) -> Translation:
    nodes = task_nodes(manifest, cast.task)
    counts = {len(gpus_on(cast.task, node.id)) for node in nodes}
    reasons += _reasons(cast, nodes, counts)
    actor, layout = shape_of(cast.actor), cast.actor.layout
    if actor is None or layout is None or len(counts) != 1:
        return Translation()
    engine = width(cast.rollout)
    rollout = sum(len(member.gpus) for member in cast.rollout.members)
    flags: dict[str, object] = {
        "--actor-num-nodes": len(actor.nodes),
        "--actor-num-gpus-per-node": actor.per_node,
        "--rollout-num-gpus": rollout,
        "--rollout-num-gpus-per-engine": engine,
        "--num-gpus-per-node": min(counts),
        "--tensor-model-parallel-size": layout.tp,
        "--pipeline-model-parallel-size": layout.pp,
        "--context-parallel-size": layout.cp,
        "--expert-model-parallel-size": layout.ep,
        "--sglang-config": f"{HERE}/sglang.yaml",
    }
    if (folder := cast.task.lifecycle.checkpoint_dir) is not None:
        flags |= {"--load": folder, "--save": folder}
    colocate = ("--colocate",) if cast.shared else ()
    return Translation(
        arguments=(*colocate, *(f"{flag}={value}" for flag, value in flags.items())),
        files={"sglang.yaml": _engines(cast, rollout, engine)},
        notes=(
            f"The plan is {cast.task.coupling.kind}: run train_async.py."
            if cast.asynchronous
            else "The plan is synchronous: run train.py.",
        ),
    )


def _reasons(cast: Cast, nodes: tuple[NodeEntry, ...], counts: set[int]) -> Iterator[str]:
    yield from colocated(cast, "slime", "reference", "critic")
    for part, role in cast.others:
        if part == "reward":
            yield f"{cast.where(role)}: slime starts no reward model; it calls one as a service"
        elif role.layout != cast.actor.layout:
            yield f"{cast.where(role)}: slime gives the {part} the actor's layout"
    yield from only(cast.where(cast.actor), cast.actor.layout, "tp pp cp ep", "slime")
    yield from only(cast.where(cast.rollout), cast.rollout.layout, "tp ep", "slime's SGLang")
    if len(counts) > 1:
        yield f"{cast.task.id}: slime has one number of GPUs for all nodes, and they have {sorted(counts)}"
    if cast.shared and cast.rollout.memory_mode != "sleep":
        yield f"{cast.task.id}: slime always offloads what it colocates, and the plan keeps it resident"
    if cast.streams:
        yield (
            f"{cast.task.id}: slime's train_async.py rolls out in batches, and the plan counts on a stream: "
            "plan it with coupling.rollouts batches"
        )
    if cast.shared and cast.asynchronous:
        yield f"{cast.task.id}: slime colocates only synchronous training"
    yield from _order(cast, nodes)


def _order(cast: Cast, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
    """Do what slime does with the GPUs it sees, and hold the result against the plan."""
    if len(nodes) > 1 and any(_number(node) is None for node in nodes):
        yield f"{cast.task.id}: slime sorts nodes by IP address, and not every node has one"
        return
    ordered = sorted(nodes, key=lambda node: _number(node) or 0)
    seen = [f"{node.id}:{gpu}" for node in ordered for gpu in gpus_on(cast.task, node.id)]
    trained = [f"{member.node}:{gpu}" for member in cast.actor.members for gpu in member.gpus]
    served = [gpu for replica in cast.rollout.replicas for gpu in replica]
    if trained != seen[: len(trained)]:
        yield (
            f"{cast.where(cast.actor)}: slime trains on the lowest GPUs, {' '.join(seen[: len(trained)])}; "
            f"the plan says {' '.join(trained)}"
        )
    first = 0 if cast.shared else len(trained)
    if served != seen[first : first + len(served)]:
        expected = " ".join(seen[first : first + len(served)])
        yield (
            f"{cast.where(cast.rollout)}: slime's engines are on {expected}; the plan says {' '.join(served)}"
        )


def _number(node: NodeEntry) -> int | None:
    try:
        return int(ipaddress.ip_address((node.address or "").strip("[]")))
    except ValueError:
        return None


def _engines(cast: Cast, rollout: int, engine: int) -> str:
    group: dict[str, object] = {
        "worker_type": "regular",
        "num_gpus": rollout,
        "num_gpus_per_engine": engine,
    }
    if cast.rollout.layout is not None and cast.rollout.layout.ep > 1:
        group["overrides"] = {"ep_size": cast.rollout.layout.ep}
    return to_yaml(
        (f"Engine groups of task {cast.task.id} for slime's --sglang-config.",),
        {"sglang": [{"name": "default", "server_groups": [group]}]},
    )

"""Emit slime: arguments over a Ray cluster per task, and a file of engine groups.

slime sorts the GPUs it sees by node address and index; the first ones train and the rest roll out,
so exact GPUs can be expressed as long as the plan has them in that order. Reference and critic live in
the actor's processes. It does not check that the nodes are equal.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from libra_plan.planner.launchers.framework import (
    EXACT_GPUS,
    HERE,
    FrameworkEmitter,
    Translation,
    assignments,
    megatron_degrees,
)
from libra_plan.planner.launchers.manifest import NodeEntry
from libra_plan.planner.launchers.ray_cluster import RayOptions
from libra_plan.planner.launchers.role_mapping import RoleMapping, colocated, only_degrees
from libra_plan.planner.launchers.shell import to_yaml

__all__ = ["EMITTER"]


class Slime(FrameworkEmitter[RayOptions]):
    """The slime emitter; it writes `TASK/slime.sh` and `sglang.yaml`."""

    def refuse(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
        """List what slime cannot express."""
        task = roles.task
        yield from colocated(roles, "slime", "reference", "critic")
        for part in roles.others:
            if part.name == "reward":
                yield f"{part.where}: slime starts no reward model; it calls one as a service"
            elif part.layout != roles.actor.layout:
                yield f"{part.where}: slime gives the {part.name} the actor's layout"
        yield from only_degrees(roles.actor, "tp pp cp ep", "slime")
        yield from only_degrees(roles.rollout, "tp ep", "slime's SGLang")
        counts = {len(task.gpus_on(node.id)) for node in nodes}
        if len(counts) > 1:
            yield f"{task.id}: slime has one number of GPUs for all nodes, and they have {sorted(counts)}"
        if roles.shared and roles.rollout.role.memory_mode != "sleep":
            yield f"{task.id}: slime always offloads what it colocates, and the plan keeps it resident"
        if roles.streams:
            yield (
                f"{task.id}: slime's train_async.py rolls out in batches, and the plan counts on a stream: "
                "plan it with coupling.rollouts batches"
            )
        if roles.shared and roles.asynchronous:
            yield f"{task.id}: slime colocates only synchronous training"
        yield from _other_order(roles, nodes)

    def translate(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Translation:
        """Write the placement as arguments, and the engine groups as a file."""
        task, actor, rollout = roles.task, roles.actor, roles.rollout
        degrees = megatron_degrees(actor.layout)
        flags: dict[str, object] = {
            "--actor-num-nodes": len(actor.nodes),
            "--actor-num-gpus-per-node": actor.per_node,
            "--rollout-num-gpus": len(rollout.gpus),
            "--rollout-num-gpus-per-engine": rollout.width,
            "--num-gpus-per-node": len(task.gpus_on(nodes[0].id)),
            **{f"--{name.replace('_', '-')}": degree for name, degree in degrees.items()},
            "--sglang-config": f"{HERE}/sglang.yaml",
        }
        if (folder := task.lifecycle.checkpoint_dir) is not None:
            flags |= {"--load": folder, "--save": folder}
        group: dict[str, object] = {
            "worker_type": "regular",
            "num_gpus": len(rollout.gpus),
            "num_gpus_per_engine": rollout.width,
        }
        if rollout.layout.ep > 1:
            group["overrides"] = {"ep_size": rollout.layout.ep}
        engines = to_yaml(
            (f"Engine groups of task {task.id} for slime's --sglang-config.",),
            {"sglang": [{"name": "default", "server_groups": [group]}]},
        )
        return Translation(
            arguments=(*(("--colocate",) if roles.shared else ()), *assignments(flags)),
            files={"sglang.yaml": engines},
            notes=(
                f"The plan is {task.coupling.kind}: run train_async.py."
                if roles.asynchronous
                else "The plan is synchronous: run train.py.",
            ),
        )


EMITTER = Slime("slime", ("624b824a", "002fa9d6"), EXACT_GPUS, RayOptions())


def _other_order(roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
    """Order GPUs as slime does, and compare the result with the plan."""
    if len(nodes) > 1 and any(_number(node) is None for node in nodes):
        yield f"{roles.task.id}: slime sorts nodes by IP address, and not every node has one"
        return
    ordered = sorted(nodes, key=lambda node: _number(node) or 0)
    seen = [f"{node.id}:{gpu}" for node in ordered for gpu in roles.task.gpus_on(node.id)]
    trained = [f"{node}:{gpu}" for node, gpu in roles.actor.role.ranks]
    served = [gpu for replica in roles.rollout.role.replicas for gpu in replica]
    lowest = seen[: len(trained)]
    if trained != lowest:
        yield (
            f"{roles.actor.where}: slime trains on the lowest GPUs, {' '.join(lowest)}; "
            f"the plan says {' '.join(trained)}"
        )
    first = 0 if roles.shared else len(trained)
    expected = seen[first : first + len(served)]
    if served != expected:
        yield (
            f"{roles.rollout.where}: slime's engines are on {' '.join(expected)}; "
            f"the plan says {' '.join(served)}"
        )


def _number(node: NodeEntry) -> int | None:
    try:
        return int(ipaddress.ip_address((node.address or "").strip("[]")))
    except ValueError:
        return None

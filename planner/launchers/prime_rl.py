"""Emit prime-rl: TOML tables. It starts torchrun and vLLM itself, without Ray.

On one node inference takes the first GPUs of CUDA_VISIBLE_DEVICES and the trainer the next, so
their order expresses the plan. On several nodes both have whole nodes, through Slurm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from libra_plan.planner.launchers.base import Ability
from libra_plan.planner.launchers.framework import (
    EXACT_GPUS,
    FrameworkEmitter,
    Translation,
    placement_header,
)
from libra_plan.planner.launchers.manifest import NodeEntry
from libra_plan.planner.launchers.ray_cluster import RayOptions
from libra_plan.planner.launchers.role_mapping import RoleMapping, only_degrees
from libra_plan.planner.launchers.shell import to_toml

__all__ = ["EMITTER"]

Table = dict[str, str | int | bool]


class PrimeRl(FrameworkEmitter[RayOptions]):
    """The prime-rl emitter; it writes `TASK/placement.toml` and `prime-rl.sh`."""

    uses_ray: ClassVar[bool] = False

    def refuse(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
        """List what prime-rl cannot express."""
        for part in roles.others:
            yield f"{part.where}: prime-rl has no {part.name} on GPUs"
        yield from only_degrees(roles.actor, "cp ep", "prime-rl's trainer")
        yield from only_degrees(roles.rollout, "tp", "prime-rl's vLLM")
        if len(nodes) > 1:
            yield from _partial_nodes(roles, nodes)
            return
        for part in (roles.actor, roles.rollout):
            if len(part.nodes) != 1:
                yield f"{part.where}: prime-rl wants a role on one node, or whole nodes"

    def translate(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Translation:
        """Write the tables, and for one node the order of its GPUs."""
        task, actor, rollout = roles.task, roles.actor, roles.rollout
        tables: dict[str, Table] = {
            "deployment": _deployment(roles, nodes),
            "trainer.model": {"cp": actor.layout.cp, "ep": actor.layout.ep},
            "inference.parallel": {"tp": rollout.layout.tp, "dp": len(rollout.role.replicas)},
        }
        environment = {}
        if len(nodes) > 1:
            tables["slurm"] = {
                "nodelist": ",".join((*rollout.nodes, *actor.nodes)),
                "cleanup_grace_period": math.ceil(task.lifecycle.grace_s),
            }
        else:
            gpus = [str(gpu) for _, gpu in (*rollout.role.ranks, *actor.role.ranks)]
            environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
        return Translation(
            files={"placement.toml": to_toml(placement_header(task, "prime-rl"), tables)},
            environment=environment,
            notes=(
                'Give both files: prime-rl.sh uv run rl @ your.toml @ "$here/placement.toml" '
                "(later ones win).",
                f"The plan is {task.coupling.kind} with {task.coupling.staleness_steps} steps of "
                "staleness: set that in your file.",
            ),
        )


EMITTER = PrimeRl("prime-rl", ("559b4477",), EXACT_GPUS - {Ability.SHARED_GPUS}, RayOptions())


def _partial_nodes(roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
    sizes = {node.id: len(node.gpus) for node in nodes}
    if len(set(sizes.values())) > 1:
        yield f"{roles.task.id}: prime-rl has one number of GPUs for all nodes, and they differ"
    for part in (roles.actor, roles.rollout):
        for node in part.nodes:
            if part.per_node != sizes[node]:
                yield (
                    f"{part.where}: on several nodes prime-rl takes whole ones, and the role has "
                    f"{part.per_node} of {sizes[node]} GPUs of {node}"
                )


def _deployment(roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Table:
    if len(nodes) == 1:
        trained, served = len(roles.actor.gpus), len(roles.rollout.gpus)
        return {
            "type": "single_node",
            "gpus_per_node": trained + served,
            "num_train_gpus": trained,
            "num_infer_gpus": served,
        }
    return {
        "type": "multi_node",
        "gpus_per_node": len(nodes[0].gpus),
        "num_train_nodes": len(roles.actor.nodes),
        "num_infer_nodes": len(roles.rollout.nodes),
        "num_infer_replicas": 1,
    }

"""Emit ROLL: device mappings as literal lists, over a Ray cluster of whole nodes per task.

ROLL numbers GPUs as node rank × GPUs per node + index, evaluates a mapping as Python (so only a
literal list is written), and gives its workers CUDA_VISIBLE_DEVICES itself, by the host's indices:
it cannot be kept off a node's other GPUs, so a task must have its nodes whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from libra_plan.planner.launchers.framework import (
    EXACT_GPUS,
    FrameworkEmitter,
    Translation,
    head_first,
    megatron_degrees,
    placement_header,
)
from libra_plan.planner.launchers.manifest import NodeEntry
from libra_plan.planner.launchers.ray_cluster import RayOptions
from libra_plan.planner.launchers.role_mapping import Part, RoleMapping, only_degrees
from libra_plan.planner.launchers.shell import to_yaml

__all__ = ["EMITTER"]

_NAMES = {
    "actor": "actor_train",
    "rollout": "actor_infer",
    "reference": "reference",
    "critic": "critic",
    "reward": "reward",
}


class Roll(FrameworkEmitter[RayOptions]):
    """The ROLL emitter, for Megatron training and vLLM rollouts; it writes `TASK/roll.yaml` and `roll.sh`."""

    def refuse(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
        """List what ROLL cannot express."""
        yield from _partial_nodes(roles, head_first(roles, nodes))
        for part in roles.parts:
            if part.name in ("actor", "critic", "reference"):
                yield from only_degrees(part, "tp pp cp ep", "ROLL with Megatron")
            else:
                yield from only_degrees(part, "tp pp", "ROLL with vLLM")
        if roles.reference is not None and not roles.reference.is_on(roles.actor):
            yield f"{roles.reference.where}: ROLL scores the reference on the actor's GPUs"
        name = roles.task.id
        if roles.shared and roles.asynchronous:
            yield f"{name}: on the same GPUs ROLL trains only synchronously"
        if roles.shared or not roles.actor.meets(roles.rollout):
            return
        if not roles.actor.gpus < roles.rollout.gpus:
            yield f"{name}: ROLL has training on all, none or a part of the rollout's GPUs"
        elif not roles.asynchronous or len(roles.rollout.role.replicas) < 2:
            yield f"{name}: training on a part of the rollout's GPUs is asynchronous, with two engines"

    def translate(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Translation:
        """Write the device mapping and strategy of every worker, and the rank of every node."""
        ordered = head_first(roles, nodes)
        per_node = len(ordered[0].gpus)
        ranks = {node.id: rank for rank, node in enumerate(ordered)}
        workers = {_NAMES[part.name]: _worker(part, ranks, per_node) for part in roles.parts}
        document = {"num_gpus_per_node": per_node, **workers}
        return Translation(
            files={"roll.yaml": to_yaml(placement_header(roles.task, "ROLL"), document)},
            notes=("Merge roll.yaml into your pipeline's configuration, after your own keys.",),
            node_environment={node: {"NODE_RANK": str(rank)} for node, rank in ranks.items()},
        )


EMITTER = Roll("roll", ("8eb27cc2",), EXACT_GPUS, RayOptions())


def _partial_nodes(roles: RoleMapping, nodes: list[NodeEntry]) -> Iterator[str]:
    for node in nodes:
        indices = sorted(gpu.index for gpu in node.gpus)
        taken = roles.task.gpus_on(node.id)
        if list(taken) != indices:
            yield (
                f"{roles.task.id}: ROLL takes whole nodes, and the task has {len(taken)} of the "
                f"{len(indices)} GPUs of {node.id}"
            )
        elif indices != list(range(len(indices))):
            yield f"{roles.task.id}: ROLL counts GPUs from 0, and {node.id} has {indices}"
    if len({len(node.gpus) for node in nodes}) > 1:
        yield f"{roles.task.id}: ROLL has one number of GPUs for all nodes, and they differ"


def _worker(part: Part, ranks: dict[str, int], per_node: int) -> dict[str, object]:
    devices = [ranks[node] * per_node + gpu for node, gpu in part.role.ranks]
    # A string, because ROLL evaluates it; digits, commas and brackets only.
    worker: dict[str, object] = {"device_mapping": str(devices)}
    if part.name in ("rollout", "reward"):
        worker["num_gpus_per_worker"] = part.width
        name = "vllm"
        config: dict[str, object] = {
            "tensor_parallel_size": part.layout.tp,
            "pipeline_parallel_size": part.layout.pp,
        }
    else:
        name = "megatron_infer" if part.name == "reference" else "megatron_train"
        config = megatron_degrees(part.layout)
    worker["strategy_args"] = {"strategy_name": name, "strategy_config": config}
    return worker

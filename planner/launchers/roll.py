"""Emit ROLL: device mappings as literal lists, over a Ray cluster of whole nodes per task.

ROLL numbers GPUs as node rank × GPUs per node + index, evaluates a mapping as Python (so only a
literal list is written), and gives its workers CUDA_VISIBLE_DEVICES itself, by the host's indices:
it cannot be kept off a node's other GPUs, so a task must have its nodes whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from libra_plan.planner.launchers.base import Ability
from libra_plan.planner.launchers.framework import FrameworkOptions, Translation, emit_framework
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, RoleEntry
from libra_plan.planner.launchers.role_mapping import Cast, only, same_gpus
from libra_plan.planner.launchers.shapes import gpus_on, role_gpus, task_nodes, width
from libra_plan.planner.launchers.shell import to_yaml

__all__ = ["EMITTER", "Roll"]

_NAMES = {
    "actor": "actor_train",
    "rollout": "actor_infer",
    "reference": "reference",
    "critic": "critic",
    "reward": "reward",
}
_MEGATRON = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}


@dataclass(frozen=True)
class Roll:
    """The ROLL emitter, for Megatron training and vLLM rollouts."""

    options: FrameworkOptions = field(default_factory=FrameworkOptions)
    name: str = "roll"
    abilities: frozenset[Ability] = frozenset(
        {Ability.GPU_IDS, Ability.MULTI_NODE, Ability.SHARED_GPUS, Ability.CPU_ROLES}
    )
    versions: tuple[str, ...] = ("8eb27cc2",)

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Write `TASK/roll.yaml`, `roll.sh` and the scripts of the task's Ray cluster."""
        return emit_framework(self, manifest, self.options, _translate)


EMITTER = Roll()


def _translate(manifest: Manifest, cast: Cast, reasons: list[str]) -> Translation:
    nodes = task_nodes(manifest, cast.task)
    head = cast.actor.members[0].node
    ordered = sorted(nodes, key=lambda node: node.id != head)
    reasons += _whole(cast, ordered)
    reasons += _reasons(cast)
    per_node = len(ordered[0].gpus)
    ranks = {node.id: rank for rank, node in enumerate(ordered)}
    mappings = {_NAMES[part]: _worker(part, role, ranks, per_node) for part, role in cast.parts}
    return Translation(
        files={
            "roll.yaml": to_yaml(
                (f"Placement of task {cast.task.id}, generation {cast.task.generation}, for ROLL.",),
                {"num_gpus_per_node": per_node, **mappings},
            )
        },
        notes=("Merge roll.yaml into your pipeline's configuration, after your own keys.",),
        node_environment={node.id: {"NODE_RANK": str(ranks[node.id])} for node in ordered},
    )


def _whole(cast: Cast, nodes: list[NodeEntry]) -> Iterator[str]:
    for node in nodes:
        indices = sorted(gpu.index for gpu in node.gpus)
        taken = gpus_on(cast.task, node.id)
        if list(taken) != indices:
            yield (
                f"{cast.task.id}: ROLL takes whole nodes, and the task has {len(taken)} of the "
                f"{len(indices)} GPUs of {node.id}"
            )
        elif indices != list(range(len(indices))):
            yield f"{cast.task.id}: ROLL counts GPUs from 0, and {node.id} has {indices}"
    if len({len(node.gpus) for node in nodes}) > 1:
        yield f"{cast.task.id}: ROLL has one number of GPUs for all nodes, and they differ"


def _reasons(cast: Cast) -> Iterator[str]:
    for part, role in cast.parts:
        if part in ("actor", "critic", "reference"):
            yield from only(cast.where(role), role.layout, "tp pp cp ep", "ROLL with Megatron")
        else:
            yield from only(cast.where(role), role.layout, "tp pp", "ROLL with vLLM")
    if cast.reference is not None and not same_gpus(cast.reference, cast.actor):
        yield f"{cast.where(cast.reference)}: ROLL scores the reference on the actor's GPUs"
    train, infer = role_gpus(cast.actor), role_gpus(cast.rollout)
    if not train & infer or train == infer:
        if train == infer and cast.asynchronous:
            yield f"{cast.task.id}: on the same GPUs ROLL trains only synchronously"
        return
    if not train < infer:
        yield f"{cast.task.id}: ROLL has training on all, none or a part of the rollout's GPUs"
    elif not cast.asynchronous or len(cast.rollout.replicas) < 2:
        yield f"{cast.task.id}: training on a part of the rollout's GPUs is asynchronous, with two engines"


def _worker(part: str, role: RoleEntry, ranks: dict[str, int], per_node: int) -> dict[str, object]:
    devices = [ranks[member.node] * per_node + gpu for member in role.members for gpu in member.gpus]
    layout = role.layout
    # A string, because ROLL evaluates it; digits, commas and brackets only.
    worker: dict[str, object] = {"device_mapping": str(devices)}
    if layout is None:
        return worker
    if part in ("rollout", "reward"):
        config = {"tensor_parallel_size": layout.tp, "pipeline_parallel_size": layout.pp}
        return {
            **worker,
            "num_gpus_per_worker": width(role),
            "strategy_args": {"strategy_name": "vllm", "strategy_config": config},
        }
    megatron = {key: getattr(layout, name) for name, key in _MEGATRON.items()}
    name = "megatron_infer" if part == "reference" else "megatron_train"
    return {**worker, "strategy_args": {"strategy_name": name, "strategy_config": megatron}}

"""Emit prime-rl: TOML tables. It starts torchrun and vLLM itself, without Ray.

On one node inference takes the first GPUs of CUDA_VISIBLE_DEVICES and the trainer the next, so
their order says the plan. On several nodes both have whole nodes, through Slurm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from libra_plan.planner.launchers.base import Ability
from libra_plan.planner.launchers.framework import FrameworkOptions, Translation, emit_framework
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry
from libra_plan.planner.launchers.role_mapping import Cast, only
from libra_plan.planner.launchers.shapes import role_gpus, task_nodes
from libra_plan.planner.launchers.shell import to_toml

__all__ = ["EMITTER", "PrimeRl"]


@dataclass(frozen=True)
class PrimeRl:
    """The prime-rl emitter."""

    options: FrameworkOptions = field(default_factory=FrameworkOptions)
    name: str = "prime-rl"
    abilities: frozenset[Ability] = frozenset({Ability.GPU_IDS, Ability.MULTI_NODE, Ability.CPU_ROLES})
    versions: tuple[str, ...] = ("559b4477",)

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Write `TASK/placement.toml` and `prime-rl.sh`."""
        return emit_framework(self, manifest, self.options, _translate)


EMITTER = PrimeRl()


def _translate(manifest: Manifest, cast: Cast, reasons: list[str]) -> Translation:
    nodes = task_nodes(manifest, cast.task)
    reasons += _reasons(cast)
    reasons += _whole(cast, nodes) if len(nodes) > 1 else _ordered(cast)
    layout = cast.rollout.layout
    tables: dict[str, dict[str, str | int | bool]] = {
        "deployment": _deployment(cast, nodes),
        "trainer.model": {"cp": 1, "ep": 1}
        if cast.actor.layout is None
        else {"cp": cast.actor.layout.cp, "ep": cast.actor.layout.ep},
        "inference.parallel": {
            "tp": 1 if layout is None else layout.tp,
            "dp": len(cast.rollout.replicas),
        },
    }
    environment = {}
    if len(nodes) > 1:
        order = [member.node for role in (cast.rollout, cast.actor) for member in role.members]
        tables["slurm"] = {
            "nodelist": ",".join(order),
            "cleanup_grace_period": math.ceil(cast.task.lifecycle.grace_s),
        }
    else:
        gpus = [gpu for role in (cast.rollout, cast.actor) for member in role.members for gpu in member.gpus]
        environment = {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        }
    header = f"Placement of task {cast.task.id}, generation {cast.task.generation}, for prime-rl."
    return Translation(
        files={"placement.toml": to_toml((header,), tables)},
        environment=environment,
        notes=(
            'Give both files: prime-rl.sh uv run rl @ your.toml @ "$here/placement.toml" (later ones win).',
            f"The plan is {cast.task.coupling.kind} with {cast.task.coupling.staleness_steps} steps of "
            "staleness: set that in your file.",
        ),
        ray=False,
    )


def _reasons(cast: Cast) -> Iterator[str]:
    for part, role in cast.others:
        yield f"{cast.where(role)}: prime-rl has no {part} on GPUs"
    yield from only(cast.where(cast.actor), cast.actor.layout, "cp ep", "prime-rl's trainer")
    yield from only(cast.where(cast.rollout), cast.rollout.layout, "tp", "prime-rl's vLLM")


def _ordered(cast: Cast) -> Iterator[str]:
    """On one node the order of the ids says everything, if each role lists its ranks' GPUs."""
    for role in (cast.actor, cast.rollout):
        if len(role.members) != 1:
            yield f"{cast.where(role)}: prime-rl wants a role on one node, or whole nodes"


def _whole(cast: Cast, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
    sizes = {node.id: len(node.gpus) for node in nodes}
    if len(set(sizes.values())) > 1:
        yield f"{cast.task.id}: prime-rl has one number of GPUs for all nodes, and they differ"
    for role in (cast.actor, cast.rollout):
        for member in role.members:
            if len(member.gpus) != sizes[member.node]:
                yield (
                    f"{cast.where(role)}: on several nodes prime-rl takes whole ones, and the role has "
                    f"{len(member.gpus)} of {sizes[member.node]} GPUs of {member.node}"
                )


def _deployment(cast: Cast, nodes: tuple[NodeEntry, ...]) -> dict[str, str | int | bool]:
    if len(nodes) == 1:
        trained, served = len(role_gpus(cast.actor)), len(role_gpus(cast.rollout))
        return {
            "type": "single_node",
            "gpus_per_node": trained + served,
            "num_train_gpus": trained,
            "num_infer_gpus": served,
        }
    return {
        "type": "multi_node",
        "gpus_per_node": len(nodes[0].gpus),
        "num_train_nodes": len(cast.actor.members),
        "num_infer_nodes": len(cast.rollout.members),
        "num_infer_replicas": 1,
    }

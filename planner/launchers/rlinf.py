"""Emit RLinf: the `cluster` block of its configuration, over a Ray cluster per task.

RLinf takes GPU numbers of the whole cluster, node after node in the order of `RLINF_NODE_RANK`.
Its model-parallel runs (math, agents) want each component on contiguous numbers, and actor,
rollout and inference on one set of GPUs or on sets without a GPU in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from libra_plan.planner.launchers.framework import (
    EXACT_GPUS,
    FrameworkEmitter,
    Translation,
    head_first,
    placement_header,
)
from libra_plan.planner.launchers.manifest import NodeEntry
from libra_plan.planner.launchers.ray_cluster import RayOptions
from libra_plan.planner.launchers.role_mapping import Part, RoleMapping, only_degrees
from libra_plan.planner.launchers.shell import to_yaml

__all__ = ["EMITTER"]

_DEGREES = {"actor": "tp pp cp", "critic": "tp pp cp", "reference": "tp pp"}


class Rlinf(FrameworkEmitter[RayOptions]):
    """The RLinf emitter; it writes `TASK/rlinf.yaml` and `rlinf.sh`."""

    def refuse(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
        """List what RLinf cannot express."""
        numbers = _numbers(roles, nodes)
        for part in roles.parts:
            taken = [numbers[rank] for rank in part.role.ranks]
            if taken != list(range(taken[0], taken[0] + len(taken))):
                yield f"{part.where}: RLinf wants contiguous GPUs in rank order, and the plan has {taken}"
        yield from only_degrees(roles.rollout, "tp", "RLinf's rollout")
        for part in roles.parts:
            if part.name in _DEGREES:
                what = "RLinf's inference" if part.name == "reference" else "RLinf"
                yield from only_degrees(part, _DEGREES[part.name], what)
        models = [part for part in roles.parts if part.name != "reward"]
        if roles.shared:
            yield from _colocated(roles, models)
            return
        for one, other in combinations(models, 2):
            if one.meets(other):
                yield (
                    f"{roles.task.id}: {one.role.id} and {other.role.id} share GPUs, while actor and "
                    "rollout do not; RLinf wants one set for all or different sets"
                )

    def translate(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Translation:
        """Write the `cluster` block, and the rank of every node."""
        numbers = _numbers(roles, nodes)
        placed = {"actor": roles.actor, "rollout": roles.rollout, "reward": roles.reward or roles.actor}
        models = {"actor": roles.actor}
        if roles.critic is not None:
            placed["critic"] = models["critic"] = roles.critic
        if roles.reference is not None and not roles.shared:
            placed["inference"] = models["inference"] = roles.reference
        placement = {}
        for name, part in placed.items():
            taken = [numbers[gpu] for gpu in part.gpus]
            placement[name] = f"{min(taken)}-{max(taken)}"
        document: dict[str, object] = {
            "cluster": {"num_nodes": len(nodes), "component_placement": placement},
            "actor": {"model": _model(models.pop("actor"))},
            "rollout": {"tensor_parallel_size": roles.rollout.layout.tp},
            **{name: {"model": _model(part)} for name, part in models.items()},
        }
        return Translation(
            files={"rlinf.yaml": to_yaml(placement_header(roles.task, "RLinf"), document)},
            notes=(
                "Merge rlinf.yaml into the configuration of your run (in `defaults`, after your own file).",
                "A reward without a model of its own is computed beside the actor.",
            ),
            node_environment={
                node.id: {"RLINF_NODE_RANK": str(rank)} for rank, node in enumerate(head_first(roles, nodes))
            },
        )


EMITTER = Rlinf("rlinf", ("0.3.0", "a3816b59"), EXACT_GPUS, RayOptions())


def _numbers(roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> dict[tuple[str, int], int]:
    """Map the task's GPUs to RLinf's numbers: node after node, on each by index."""
    there = [(node.id, gpu) for node in head_first(roles, nodes) for gpu in roles.task.gpus_on(node.id)]
    return {gpu: number for number, gpu in enumerate(there)}


def _colocated(roles: RoleMapping, models: list[Part]) -> Iterator[str]:
    for part in models:
        if not part.is_on(roles.actor):
            yield f"{part.where}: RLinf colocates all components or none, and this one is elsewhere"
        if part is roles.reference and part.layout != roles.actor.layout:
            yield f"{part.where}: colocated, RLinf scores the reference in the actor's layout"
    actor, rollout = roles.actor.layout, roles.rollout.layout
    if actor.tp > rollout.tp > 1:
        yield (
            f"{roles.rollout.where}: colocated, RLinf strides engines of tp {rollout.tp} over the "
            f"actor's tp {actor.tp}, and the plan has them side by side"
        )
    if roles.asynchronous:
        yield f"{roles.task.id}: RLinf colocates only synchronous training"


def _model(part: Part) -> dict[str, int]:
    layout = part.layout
    degrees = {"tensor_model_parallel_size": layout.tp, "pipeline_model_parallel_size": layout.pp}
    return degrees | ({"context_parallel_size": layout.cp} if layout.cp > 1 else {})

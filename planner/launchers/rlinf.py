"""Emit RLinf: the `cluster` block of its configuration, over a Ray cluster per task.

RLinf takes GPU numbers of the whole cluster, node after node in the order of `RLINF_NODE_RANK`.
Its model-parallel runs (math, agents) want each component on contiguous numbers, and actor,
rollout and inference on one set of GPUs or on sets without a GPU in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from libra_plan.planner.launchers.base import Ability
from libra_plan.planner.launchers.framework import FrameworkOptions, Translation, emit_framework
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, RoleEntry
from libra_plan.planner.launchers.role_mapping import Cast, only, same_gpus
from libra_plan.planner.launchers.shapes import gpus_on, role_gpus, task_nodes
from libra_plan.planner.launchers.shell import to_yaml

__all__ = ["EMITTER", "Rlinf"]


@dataclass(frozen=True)
class Rlinf:
    """The RLinf emitter."""

    options: FrameworkOptions = field(default_factory=FrameworkOptions)
    name: str = "rlinf"
    abilities: frozenset[Ability] = frozenset(
        {Ability.GPU_IDS, Ability.MULTI_NODE, Ability.SHARED_GPUS, Ability.CPU_ROLES}
    )
    versions: tuple[str, ...] = ("0.3.0", "a3816b59")

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Write `TASK/rlinf.yaml`, `rlinf.sh` and the scripts of the task's Ray cluster."""
        return emit_framework(self, manifest, self.options, _translate)


EMITTER = Rlinf()


def _translate(manifest: Manifest, cast: Cast, reasons: list[str]) -> Translation:
    nodes = task_nodes(manifest, cast.task)
    head = cast.actor.members[0].node
    ordered = sorted(nodes, key=lambda node: node.id != head)  # the head has rank 0
    numbers = _numbers(cast, ordered)
    reasons += _reasons(cast, numbers)
    return Translation(
        files={"rlinf.yaml": _placement(cast, ordered, numbers)},
        notes=(
            "Merge rlinf.yaml into the configuration of your run (in `defaults`, after your own file).",
            "A reward without a model of its own is computed beside the actor.",
        ),
        node_environment={node.id: {"RLINF_NODE_RANK": str(rank)} for rank, node in enumerate(ordered)},
    )


def _numbers(cast: Cast, nodes: list[NodeEntry]) -> dict[tuple[str, int], int]:
    """Give the task's GPUs the numbers that RLinf does: node after node, on each by index."""
    there = [(node.id, gpu) for node in nodes for gpu in gpus_on(cast.task, node.id)]
    return {gpu: number for number, gpu in enumerate(there)}


def _reasons(cast: Cast, numbers: dict[tuple[str, int], int]) -> Iterator[str]:
    for _, role in cast.parts:
        taken = [numbers[member.node, gpu] for member in role.members for gpu in member.gpus]
        if taken != list(range(taken[0], taken[0] + len(taken))):
            yield f"{cast.where(role)}: RLinf wants contiguous GPUs in rank order, and the plan has {taken}"
    yield from only(cast.where(cast.rollout), cast.rollout.layout, "tp", "RLinf's rollout")
    for part, role in cast.parts:
        if part in ("actor", "critic"):
            yield from only(cast.where(role), role.layout, "tp pp cp", "RLinf")
        elif part == "reference":
            yield from only(cast.where(role), role.layout, "tp pp", "RLinf's inference")
    yield from _sets(cast)


def _sets(cast: Cast) -> Iterator[str]:
    models = [role for part, role in cast.parts if part != "reward"]
    if cast.shared:
        for role in models:
            if not same_gpus(role, cast.actor):
                yield f"{cast.where(role)}: RLinf colocates all components or none, and this one is elsewhere"
            if role is cast.reference and role.layout != cast.actor.layout:
                yield f"{cast.where(role)}: colocated, RLinf scores the reference in the actor's layout"
        actor, rollout = cast.actor.layout, cast.rollout.layout
        if actor is not None and rollout is not None and actor.tp > rollout.tp > 1:
            yield (
                f"{cast.where(cast.rollout)}: colocated, RLinf strides engines of tp {rollout.tp} over the "
                f"actor's tp {actor.tp}, and the plan has them side by side"
            )
        if cast.asynchronous:
            yield f"{cast.task.id}: RLinf colocates only synchronous training"
        return
    for number, role in enumerate(models):
        for other in models[number + 1 :]:
            if role_gpus(role) & role_gpus(other):
                yield (
                    f"{cast.task.id}: {role.id} and {other.id} share GPUs, while actor and rollout do not; "
                    "RLinf wants one set for all or different sets"
                )


def _span(role: RoleEntry, numbers: dict[tuple[str, int], int]) -> str:
    taken = [numbers[gpu] for gpu in role_gpus(role)]
    return f"{min(taken)}-{max(taken)}"


def _placement(cast: Cast, nodes: list[NodeEntry], numbers: dict[tuple[str, int], int]) -> str:
    reward = cast.reward or cast.actor
    placement = {
        "actor": _span(cast.actor, numbers),
        "rollout": _span(cast.rollout, numbers),
        "reward": _span(reward, numbers),
    }
    document: dict[str, object] = {}
    if cast.critic is not None:
        placement["critic"] = _span(cast.critic, numbers)
        document["critic"] = {"model": _model(cast.critic)}
    if cast.reference is not None and not cast.shared:
        placement["inference"] = _span(cast.reference, numbers)
        document["inference"] = {"model": _model(cast.reference)}
    rollout = cast.rollout.layout
    return to_yaml(
        (f"Placement of task {cast.task.id}, generation {cast.task.generation}, for RLinf.",),
        {
            "cluster": {"num_nodes": len(nodes), "component_placement": placement},
            "actor": {"model": _model(cast.actor)},
            "rollout": {"tensor_parallel_size": 1 if rollout is None else rollout.tp},
            **document,
        },
    )


def _model(role: RoleEntry) -> dict[str, int]:
    layout = role.layout
    if layout is None:
        return {}
    degrees = {"tensor_model_parallel_size": layout.tp, "pipeline_model_parallel_size": layout.pp}
    return degrees | ({"context_parallel_size": layout.cp} if layout.cp > 1 else {})

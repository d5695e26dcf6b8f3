"""Emit AReaL: an allocation per engine, with its Ray scheduler over a cluster per task.

`BACKEND:d4t2` says dimensions (d data, t tensor, p pipeline, c context, e expert); the world is
their product without e. AReaL takes counts; its own local scheduler would deal out GPUs in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from libra_plan.planner.launchers.base import Ability
from libra_plan.planner.launchers.framework import FrameworkOptions, Translation, emit_framework
from libra_plan.planner.launchers.manifest import Manifest, RoleEntry
from libra_plan.planner.launchers.role_mapping import Cast, only, same_gpus
from libra_plan.planner.launchers.shapes import gpus_on, role_gpus, task_nodes, width
from libra_plan.planner.launchers.shell import hydra_text

__all__ = ["EMITTER", "Areal", "ArealOptions"]

_NAMES = {"actor": "actor", "rollout": "rollout", "reference": "ref", "critic": "critic"}


class ArealOptions(FrameworkOptions, frozen=True, kw_only=True):
    """`engine`: what trains; `server`: what rolls out."""

    engine: Literal["fsdp", "megatron", "archon"] = "fsdp"
    server: Literal["sglang", "vllm"] = "sglang"


@dataclass(frozen=True)
class Areal:
    """The AReaL emitter."""

    options: ArealOptions = field(default_factory=ArealOptions)
    name: str = "areal"
    abilities: frozenset[Ability] = frozenset(
        {Ability.TASK_GPUS, Ability.MULTI_NODE, Ability.SHARED_GPUS, Ability.CPU_ROLES}
    )
    versions: tuple[str, ...] = ("1.0.4",)

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Write `TASK/areal.sh` and the scripts of the task's Ray cluster."""
        return emit_framework(self, manifest, self.options, self._translate)

    def _translate(self, manifest: Manifest, cast: Cast, reasons: list[str]) -> Translation:
        reasons += _reasons(cast, self.options)
        nodes = task_nodes(manifest, cast.task)
        keys: dict[str, object] = {
            "scheduler.type": "ray",
            "cluster.n_nodes": len(nodes),
            "cluster.n_gpus_per_node": len(gpus_on(cast.task, nodes[0].id)),
            **({"enable_offload": "true", "actor.weight_update_mode": "disk"} if cast.shared else {}),
            "rollout.max_head_offpolicyness": cast.task.coupling.staleness_steps if cast.asynchronous else 0,
        }
        for part, role in cast.parts:
            if (name := _NAMES.get(part)) is None:
                continue
            backend = self.options.server if part == "rollout" else self.options.engine
            keys[f"{name}.backend"] = hydra_text(f"{backend}:{_dimensions(role)}")
            target = "" if part == "actor" or not same_gpus(role, cast.actor) else "actor"
            keys[f"{name}.scheduling_strategy.type"] = "colocation" if target else "separation"
            if target:
                keys[f"{name}.scheduling_strategy.target"] = target
        return Translation(arguments=tuple(f"{key}={value}" for key, value in keys.items()))


EMITTER = Areal()


def _dimensions(role: RoleEntry) -> str:
    layout = role.layout
    if layout is None:
        return "d1"
    degrees = {"d": layout.dp, "t": layout.tp, "p": layout.pp, "c": layout.cp, "e": layout.ep}
    return "".join(f"{name}{value}" for name, value in degrees.items() if value > 1 or name == "d")


def _reasons(cast: Cast, options: ArealOptions) -> Iterator[str]:
    allowed = "tp cp" if options.engine == "fsdp" else "tp pp cp ep"
    for part, role in cast.parts:
        if part == "reward":
            yield f"{cast.where(role)}: AReaL starts no reward model; it calls one as a service"
        elif part == "rollout":
            yield from only(cast.where(role), role.layout, "tp pp", f"AReaL with {options.server}")
            if cast.shared and width(role) > 1:
                yield f"{cast.where(role)}: AReaL colocates one engine with each of the actor's workers"
        else:
            yield from only(cast.where(role), role.layout, allowed, f"AReaL with {options.engine}")
        shared = role_gpus(role) & role_gpus(cast.actor)
        if shared and not same_gpus(role, cast.actor):
            yield f"{cast.where(role)}: AReaL colocates engines on the same GPUs, not on some of them"
    if cast.shared and cast.rollout.memory_mode != "sleep":
        yield f"{cast.task.id}: AReaL always offloads what it colocates, and the plan keeps it resident"
    for part, role in cast.others:
        if role_gpus(role) & role_gpus(cast.rollout) and not cast.shared:
            yield f"{cast.where(role)}: AReaL's {part} may share the actor's GPUs, not the rollout's alone"

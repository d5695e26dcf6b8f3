"""Emit AReaL: an allocation per engine, with its Ray scheduler over a cluster per task.

`BACKEND:d4t2` names dimensions (d data, t tensor, p pipeline, c context, e expert); the world is
their product without e. AReaL takes counts; its own local scheduler would deal out GPUs in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from libra_plan.planner.launchers.framework import TASK_GPUS, FrameworkEmitter, Translation, assignments
from libra_plan.planner.launchers.manifest import DegreesEntry, NodeEntry
from libra_plan.planner.launchers.ray_cluster import RayOptions
from libra_plan.planner.launchers.role_mapping import RoleMapping, only_degrees
from libra_plan.planner.launchers.shell import hydra_text

__all__ = ["EMITTER"]

_NAMES = {"actor": "actor", "rollout": "rollout", "reference": "ref", "critic": "critic"}


class ArealOptions(RayOptions, frozen=True, kw_only=True):
    """`engine`: what trains; `server`: what rolls out."""

    engine: Literal["fsdp", "megatron", "archon"] = "fsdp"
    server: Literal["sglang", "vllm"] = "sglang"


class Areal(FrameworkEmitter[ArealOptions]):
    """The AReaL emitter; it writes `TASK/areal.sh`."""

    def refuse(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
        """List what AReaL cannot express."""
        allowed = "tp cp" if self.options.engine == "fsdp" else "tp pp cp ep"
        for part in roles.parts:
            if part.name == "reward":
                yield f"{part.where}: AReaL starts no reward model; it calls one as a service"
            elif part.name == "rollout":
                yield from only_degrees(part, "tp pp", f"AReaL with {self.options.server}")
                if roles.shared and part.width > 1:
                    yield f"{part.where}: AReaL colocates one engine with each of the actor's workers"
            else:
                yield from only_degrees(part, allowed, f"AReaL with {self.options.engine}")
            if part.meets(roles.actor) and not part.is_on(roles.actor):
                yield f"{part.where}: AReaL colocates engines on the same GPUs, not on some of them"
        if roles.shared and roles.rollout.role.memory_mode != "sleep":
            yield f"{roles.task.id}: AReaL always offloads what it colocates, and the plan keeps it resident"
        for part in roles.others:
            if part.meets(roles.rollout) and not roles.shared:
                yield (
                    f"{part.where}: AReaL's {part.name} may share the actor's GPUs, not the rollout's alone"
                )

    def translate(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Translation:
        """Write the allocations as overrides."""
        values: dict[str, object] = {
            "scheduler.type": "ray",
            "cluster.n_nodes": len(nodes),
            "cluster.n_gpus_per_node": len(roles.task.gpus_on(nodes[0].id)),
            **({"enable_offload": "true", "actor.weight_update_mode": "disk"} if roles.shared else {}),
            "rollout.max_head_offpolicyness": (
                roles.task.coupling.staleness_steps if roles.asynchronous else 0
            ),
        }
        for part in roles.parts:
            name = _NAMES[part.name]
            backend = self.options.server if part.name == "rollout" else self.options.engine
            values[f"{name}.backend"] = hydra_text(f"{backend}:{_dimensions(part.layout)}")
            colocated = part.name != "actor" and part.is_on(roles.actor)
            values[f"{name}.scheduling_strategy.type"] = "colocation" if colocated else "separation"
            if colocated:
                values[f"{name}.scheduling_strategy.target"] = "actor"
        return Translation(assignments(values))


EMITTER = Areal("areal", ("1.0.4",), TASK_GPUS, ArealOptions())


def _dimensions(layout: DegreesEntry) -> str:
    degrees = {"d": layout.dp, "t": layout.tp, "p": layout.pp, "c": layout.cp, "e": layout.ep}
    return "".join(f"{name}{value}" for name, value in degrees.items() if value > 1 or name == "d")

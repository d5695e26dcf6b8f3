"""Emit SkyRL: Hydra-style overrides over a Ray cluster per task."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Literal

from libra_plan.planner.launchers.framework import (
    TASK_GPUS,
    FrameworkEmitter,
    Translation,
    assignments,
    megatron_degrees,
)
from libra_plan.planner.launchers.manifest import NodeEntry
from libra_plan.planner.launchers.ray_cluster import RayOptions
from libra_plan.planner.launchers.role_mapping import RoleMapping, only_degrees
from libra_plan.planner.launchers.shell import hydra_text

__all__ = ["EMITTER"]

_NAMES = {"actor": "policy", "reference": "ref", "critic": "critic"}


class SkyRlOptions(RayOptions, frozen=True, kw_only=True):
    """`engine`: what trains."""

    engine: Literal["fsdp", "megatron"] = "fsdp"


class SkyRl(FrameworkEmitter[SkyRlOptions]):
    """The SkyRL emitter; it writes `TASK/skyrl.sh`."""

    def refuse(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
        """List what SkyRL cannot express."""
        engine = self.options.engine
        for part in roles.parts:
            if part.name == "reward":
                yield f"{part.where}: SkyRL has no reward model of its own"
            elif part.name == "rollout":
                yield from only_degrees(part, "tp pp", "SkyRL with vLLM")
            else:
                allowed = "cp" if engine == "fsdp" else "tp pp cp ep"
                yield from only_degrees(part, allowed, f"SkyRL with {engine}")
        if roles.critic is not None and engine == "megatron":
            yield f"{roles.critic.where}: SkyRL has no layout for a critic with Megatron"
        if roles.shared:
            for part in roles.others:
                if not part.is_on(roles.actor):
                    yield f"{part.where}: with colocate_all SkyRL has the {part.name} on the same GPUs"
            if roles.asynchronous:
                yield f"{roles.task.id}: SkyRL colocates only synchronous training"
            return
        for one, other in combinations(roles.parts, 2):
            may_share = one is roles.actor and other is roles.reference and one.is_on(other)
            if one.meets(other) and not may_share:
                yield (
                    f"{roles.task.id}: {one.role.id} and {other.role.id} share GPUs; without colocate_all "
                    "SkyRL shares only policy and reference, on the same GPUs"
                )

    def translate(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Translation:
        """Write placement, layouts and engines as overrides."""
        values = {**_placement(roles), **self._layouts(roles), **_engines(roles)}
        if (folder := roles.task.lifecycle.checkpoint_dir) is not None:
            values |= {"trainer.ckpt_path": hydra_text(folder), "trainer.resume_mode": "latest"}
        note = f"The plan is {roles.task.coupling.kind}: run the asynchronous trainer."
        return Translation(assignments(values), notes=(note,) if roles.asynchronous else ())

    def _layouts(self, roles: RoleMapping) -> dict[str, object]:
        values: dict[str, object] = {"trainer.strategy": self.options.engine}
        for part in roles.parts:
            home = f"trainer.{_NAMES.get(part.name)}"
            if part.name in _NAMES and self.options.engine == "fsdp":
                values[f"{home}.sequence_parallel_size"] = part.layout.cp
            elif part.name in _NAMES:
                values |= megatron_degrees(part.layout, f"{home}.megatron_config.")
        return values


EMITTER = SkyRl("skyrl", ("0.3.0", "a9564572"), TASK_GPUS, SkyRlOptions())


def _placement(roles: RoleMapping) -> dict[str, object]:
    together = roles.reference is not None and roles.reference.is_on(roles.actor)
    home = "trainer.placement"
    values: dict[str, object] = {
        f"{home}.colocate_all": str(roles.shared).lower(),
        f"{home}.colocate_policy_ref": str(together).lower(),
    }
    for part in roles.parts:
        if part.name in _NAMES:
            values[f"{home}.{_NAMES[part.name]}_num_nodes"] = len(part.nodes)
            values[f"{home}.{_NAMES[part.name]}_num_gpus_per_node"] = part.per_node
    return values


def _engines(roles: RoleMapping) -> dict[str, object]:
    home = "generator.inference_engine"
    return {
        f"{home}.num_engines": len(roles.rollout.role.replicas),
        f"{home}.tensor_parallel_size": roles.rollout.layout.tp,
        f"{home}.pipeline_parallel_size": roles.rollout.layout.pp,
        f"{home}.data_parallel_size": 1,
        f"{home}.expert_parallel_size": 1,
    }

"""Emit NeMo-RL: overrides over a Ray cluster per task.

Its policy holds actor and reference. A separate generation takes GPUs of the one node, or, with
several nodes, whole nodes. The configuration accepts unknown keys, so a wrong one would pass:
tests hold every key against a recorded list.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from libra_plan.planner.launchers.role_mapping import RoleMapping, colocated, only_degrees
from libra_plan.planner.launchers.shell import hydra_text

__all__ = ["EMITTER"]


class NemoRlOptions(RayOptions, frozen=True, kw_only=True):
    """`engine`: what trains."""

    engine: Literal["dtensor", "megatron"] = "dtensor"


class NemoRl(FrameworkEmitter[NemoRlOptions]):
    """The NeMo-RL emitter; it writes `TASK/nemo-rl.sh`."""

    def refuse(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
        """List what NeMo-RL cannot express."""
        yield from colocated(roles, "NeMo-RL", "reference")
        for part in roles.others:
            if part.name in ("critic", "reward"):
                yield f"{part.where}: NeMo-RL's GRPO has no {part.name} on GPUs"
            elif part.layout != roles.actor.layout:
                yield f"{part.where}: NeMo-RL gives the {part.name} the actor's layout"
        allowed = "tp cp" if self.options.engine == "dtensor" else "tp pp cp ep"
        yield from only_degrees(roles.actor, allowed, f"NeMo-RL with {self.options.engine}")
        yield from only_degrees(roles.rollout, "tp pp", "NeMo-RL with vLLM")
        if roles.shared and roles.asynchronous:
            yield f"{roles.task.id}: asynchronous NeMo-RL needs a generation on GPUs of its own"
        if not roles.shared and roles.actor.meets(roles.rollout):
            yield f"{roles.task.id}: NeMo-RL has generation on all of the policy's GPUs or on none"

    def translate(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Translation:
        """Write the placement as overrides."""
        values: dict[str, object] = {
            "cluster.num_nodes": len(nodes),
            "cluster.gpus_per_node": len(roles.task.gpus_on(nodes[0].id)),
            **_generation(roles, len(nodes)),
        }
        layout = roles.actor.layout
        if self.options.engine == "dtensor":
            values |= {
                "policy.dtensor_cfg.enabled": "true",
                "policy.megatron_cfg.enabled": "false",
                "policy.dtensor_cfg.tensor_parallel_size": layout.tp,
                "policy.dtensor_cfg.context_parallel_size": layout.cp,
            }
        else:
            values |= {"policy.megatron_cfg.enabled": "true", "policy.dtensor_cfg.enabled": "false"}
            values |= megatron_degrees(layout, "policy.megatron_cfg.")
        if roles.asynchronous:
            age = max(1, roles.task.coupling.staleness_steps)
            values |= {
                "grpo.async_grpo.enabled": "true",
                "grpo.async_grpo.max_trajectory_age_steps": age,
            }
        if (folder := roles.task.lifecycle.checkpoint_dir) is not None:
            values["checkpointing.checkpoint_dir"] = hydra_text(folder)
        return Translation(assignments(values))


EMITTER = NemoRl("nemo-rl", ("7ea279ab",), TASK_GPUS, NemoRlOptions())


def _generation(roles: RoleMapping, nodes: int) -> dict[str, object]:
    rollout, home = roles.rollout, "policy.generation"
    values: dict[str, object] = {
        f"{home}.colocated.enabled": str(roles.shared).lower(),
        f"{home}.vllm_cfg.tensor_parallel_size": rollout.layout.tp,
        f"{home}.vllm_cfg.pipeline_parallel_size": rollout.layout.pp,
    }
    if not roles.shared:
        values[f"{home}.colocated.resources.gpus_per_node"] = rollout.per_node
        values[f"{home}.colocated.resources.num_nodes"] = len(rollout.nodes) if nodes > 1 else "null"
    return values

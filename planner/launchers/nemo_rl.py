"""Emit NeMo-RL: overrides over a Ray cluster per task.

Its policy holds actor and reference. A separate generation takes GPUs of the one node, or, with
several nodes, whole nodes. The configuration accepts unknown keys, so a wrong one would pass:
tests hold every key against a recorded list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from libra_plan.planner.launchers.base import Ability
from libra_plan.planner.launchers.framework import FrameworkOptions, Translation, emit_framework
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.launchers.role_mapping import Cast, colocated, only
from libra_plan.planner.launchers.shapes import gpus_on, role_gpus, shape_of, task_nodes
from libra_plan.planner.launchers.shell import hydra_text

__all__ = ["EMITTER", "NemoRl", "NemoRlOptions"]


class NemoRlOptions(FrameworkOptions, frozen=True, kw_only=True):
    """`engine`: what trains."""

    engine: Literal["dtensor", "megatron"] = "dtensor"


@dataclass(frozen=True)
class NemoRl:
    """The NeMo-RL emitter."""

    options: NemoRlOptions = field(default_factory=NemoRlOptions)
    name: str = "nemo-rl"
    abilities: frozenset[Ability] = frozenset(
        {Ability.TASK_GPUS, Ability.MULTI_NODE, Ability.SHARED_GPUS, Ability.CPU_ROLES}
    )
    versions: tuple[str, ...] = ("7ea279ab",)

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Write `TASK/nemo-rl.sh` and the scripts of the task's Ray cluster."""
        return emit_framework(self, manifest, self.options, self._translate)

    def _translate(self, manifest: Manifest, cast: Cast, reasons: list[str]) -> Translation:
        reasons += _reasons(cast, self.options)
        nodes = task_nodes(manifest, cast.task)
        per_node = len(gpus_on(cast.task, nodes[0].id))
        keys: dict[str, object] = {
            "cluster.num_nodes": len(nodes),
            "cluster.gpus_per_node": per_node,
            **_generation(cast, len(nodes)),
            **_training(cast, self.options),
        }
        if cast.asynchronous:
            keys |= {
                "grpo.async_grpo.enabled": "true",
                "grpo.async_grpo.max_trajectory_age_steps": max(1, cast.task.coupling.staleness_steps),
            }
        if (folder := cast.task.lifecycle.checkpoint_dir) is not None:
            keys["checkpointing.checkpoint_dir"] = hydra_text(folder)
        return Translation(arguments=tuple(f"{key}={value}" for key, value in keys.items()))


EMITTER = NemoRl()


def _reasons(cast: Cast, options: NemoRlOptions) -> Iterator[str]:
    yield from colocated(cast, "NeMo-RL", "reference")
    for part, role in cast.others:
        if part in ("critic", "reward"):
            yield f"{cast.where(role)}: NeMo-RL's GRPO has no {part} on GPUs"
        elif role.layout != cast.actor.layout:
            yield f"{cast.where(role)}: NeMo-RL gives the {part} the actor's layout"
    allowed = "tp cp" if options.engine == "dtensor" else "tp pp cp ep"
    yield from only(cast.where(cast.actor), cast.actor.layout, allowed, f"NeMo-RL with {options.engine}")
    yield from only(cast.where(cast.rollout), cast.rollout.layout, "tp pp", "NeMo-RL with vLLM")
    if cast.shared:
        if cast.asynchronous:
            yield f"{cast.task.id}: asynchronous NeMo-RL needs a generation on GPUs of its own"
        return
    if role_gpus(cast.actor) & role_gpus(cast.rollout):
        yield f"{cast.task.id}: NeMo-RL has generation on all of the policy's GPUs or on none"


def _generation(cast: Cast, nodes: int) -> dict[str, object]:
    layout, shape = cast.rollout.layout, shape_of(cast.rollout)
    home = "policy.generation"
    keys: dict[str, object] = {
        f"{home}.colocated.enabled": str(cast.shared).lower(),
        f"{home}.vllm_cfg.tensor_parallel_size": 1 if layout is None else layout.tp,
        f"{home}.vllm_cfg.pipeline_parallel_size": 1 if layout is None else layout.pp,
    }
    if cast.shared or shape is None:
        return keys
    keys[f"{home}.colocated.resources.gpus_per_node"] = shape.per_node
    keys[f"{home}.colocated.resources.num_nodes"] = len(shape.nodes) if nodes > 1 else "null"
    return keys


def _training(cast: Cast, options: NemoRlOptions) -> dict[str, object]:
    layout = cast.actor.layout
    if layout is None:
        return {}
    if options.engine == "dtensor":
        home = "policy.dtensor_cfg"
        return {
            f"{home}.enabled": "true",
            "policy.megatron_cfg.enabled": "false",
            f"{home}.tensor_parallel_size": layout.tp,
            f"{home}.context_parallel_size": layout.cp,
        }
    home = "policy.megatron_cfg"
    return {
        f"{home}.enabled": "true",
        "policy.dtensor_cfg.enabled": "false",
        f"{home}.tensor_model_parallel_size": layout.tp,
        f"{home}.pipeline_model_parallel_size": layout.pp,
        f"{home}.context_parallel_size": layout.cp,
        f"{home}.expert_model_parallel_size": layout.ep,
    }

"""Emit SkyRL: Hydra-style overrides over a Ray cluster per task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from libra_plan.planner.launchers.base import Ability
from libra_plan.planner.launchers.framework import FrameworkOptions, Translation, emit_framework
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.launchers.role_mapping import Cast, only, same_gpus
from libra_plan.planner.launchers.shapes import role_gpus, shape_of
from libra_plan.planner.launchers.shell import hydra_text

__all__ = ["EMITTER", "SkyRl", "SkyRlOptions"]

_NAMES = {"actor": "policy", "reference": "ref", "critic": "critic"}


class SkyRlOptions(FrameworkOptions, frozen=True, kw_only=True):
    """`engine`: what trains."""

    engine: Literal["fsdp", "megatron"] = "fsdp"


@dataclass(frozen=True)
class SkyRl:
    """The SkyRL emitter."""

    options: SkyRlOptions = field(default_factory=SkyRlOptions)
    name: str = "skyrl"
    abilities: frozenset[Ability] = frozenset(
        {Ability.TASK_GPUS, Ability.MULTI_NODE, Ability.SHARED_GPUS, Ability.CPU_ROLES}
    )
    versions: tuple[str, ...] = ("0.3.0", "a9564572")

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Write `TASK/skyrl.sh` and the scripts of the task's Ray cluster."""
        return emit_framework(self, manifest, self.options, self._translate)

    def _translate(self, manifest: Manifest, cast: Cast, reasons: list[str]) -> Translation:
        reasons += _reasons(cast, self.options)
        keys = {**_placement(cast), **_layouts(cast, self.options), **_engines(cast)}
        if (folder := cast.task.lifecycle.checkpoint_dir) is not None:
            keys |= {"trainer.ckpt_path": hydra_text(folder), "trainer.resume_mode": "latest"}
        notes = (
            (f"The plan is {cast.task.coupling.kind}: run the asynchronous trainer.",)
            if cast.asynchronous
            else ()
        )
        return Translation(arguments=tuple(f"{key}={value}" for key, value in keys.items()), notes=notes)


EMITTER = SkyRl()


def _reasons(cast: Cast, options: SkyRlOptions) -> Iterator[str]:
    allowed = "cp" if options.engine == "fsdp" else "tp pp cp ep"
    for part, role in cast.parts:
        if part == "reward":
            yield f"{cast.where(role)}: SkyRL has no reward model of its own"
        elif part == "rollout":
            yield from only(cast.where(role), role.layout, "tp pp", "SkyRL with vLLM")
        else:
            yield from only(cast.where(role), role.layout, allowed, f"SkyRL with {options.engine}")
    if cast.critic is not None and options.engine == "megatron":
        yield f"{cast.where(cast.critic)}: SkyRL has no layout for a critic with Megatron"
    if cast.shared:
        for part, role in cast.others:
            if not same_gpus(role, cast.actor):
                yield f"{cast.where(role)}: with colocate_all SkyRL has the {part} on the same GPUs"
        if cast.asynchronous:
            yield f"{cast.task.id}: SkyRL colocates only synchronous training"
        return
    yield from _separate(cast)


def _separate(cast: Cast) -> Iterator[str]:
    parts = [role for _, role in cast.parts]
    for number, role in enumerate(parts):
        for other in parts[number + 1 :]:
            if not role_gpus(role) & role_gpus(other):
                continue
            pair = role is cast.actor and other is cast.reference
            if not pair or not same_gpus(role, other):
                yield (
                    f"{cast.task.id}: {role.id} and {other.id} share GPUs; without colocate_all SkyRL "
                    "shares only policy and reference, on the same GPUs"
                )


def _placement(cast: Cast) -> dict[str, object]:
    together = cast.reference is not None and same_gpus(cast.reference, cast.actor)
    home = "trainer.placement"
    keys: dict[str, object] = {
        f"{home}.colocate_all": str(cast.shared).lower(),
        f"{home}.colocate_policy_ref": str(together).lower(),
    }
    for part, role in cast.parts:
        shape = shape_of(role)
        if part in _NAMES and shape is not None:
            keys[f"{home}.{_NAMES[part]}_num_nodes"] = len(shape.nodes)
            keys[f"{home}.{_NAMES[part]}_num_gpus_per_node"] = shape.per_node
    return keys


def _layouts(cast: Cast, options: SkyRlOptions) -> dict[str, object]:
    keys: dict[str, object] = {"trainer.strategy": options.engine}
    for part, role in cast.parts:
        layout = role.layout
        if part not in _NAMES or layout is None:
            continue
        home = f"trainer.{_NAMES[part]}"
        if options.engine == "fsdp":
            keys[f"{home}.sequence_parallel_size"] = layout.cp
        elif part != "critic":
            keys |= {
                f"{home}.megatron_config.tensor_model_parallel_size": layout.tp,
                f"{home}.megatron_config.pipeline_model_parallel_size": layout.pp,
                f"{home}.megatron_config.context_parallel_size": layout.cp,
                f"{home}.megatron_config.expert_model_parallel_size": layout.ep,
            }
    return keys


def _engines(cast: Cast) -> dict[str, object]:
    layout = cast.rollout.layout
    home = "generator.inference_engine"
    return {
        f"{home}.num_engines": len(cast.rollout.replicas),
        f"{home}.tensor_parallel_size": 1 if layout is None else layout.tp,
        f"{home}.pipeline_parallel_size": 1 if layout is None else layout.pp,
        f"{home}.data_parallel_size": 1,
        f"{home}.expert_parallel_size": 1,
    }

"""Emit OpenRLHF: command-line flags over a Ray cluster per task.

Flags have underscores up to 0.10.1 and dots from 0.10.2 on. DeepSpeed models share one
tensor-parallel and one ring-attention degree; colocated models have equal nodes and GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Final

from msgspec import Meta

from libra_plan.planner.launchers.base import Ability
from libra_plan.planner.launchers.framework import FrameworkOptions, Translation, emit_framework
from libra_plan.planner.launchers.manifest import Manifest, RoleEntry
from libra_plan.planner.launchers.role_mapping import Cast, only, same_gpus
from libra_plan.planner.launchers.shapes import role_gpus, shape_of, uneven, width

__all__ = ["EMITTER", "OpenRlhf", "OpenRlhfOptions"]

_DOTTED_SINCE = (0, 10, 2)
_UNDERSCORED: Final = {
    "train.colocate_all": "colocate_all_models",
    "train.colocate_actor_ref": "colocate_actor_ref",
    "train.colocate_critic_reward": "colocate_critic_reward",
    "train.async_enable": "async_train",
    "train.async_queue_size": "async_queue_size",
    "ds.tensor_parallel_size": "ds_tensor_parallel_size",
    "ds.ring_attn_size": "ring_attn_size",
    "ds.enable_sleep": "deepspeed_enable_sleep",
    "algo.kl.init_coef": "init_kl_coef",
    "ckpt.path": "ckpt_path",
    "ckpt.load_enable": "load_checkpoint",
}
_NAMES = {"actor": "actor", "reference": "ref", "critic": "critic", "reward": "reward"}


class OpenRlhfOptions(FrameworkOptions, frozen=True, kw_only=True):
    """`version`: the installed OpenRLHF, which decides how flags are spelled."""

    version: Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+\Z")] = "0.11.2"


@dataclass(frozen=True)
class OpenRlhf:
    """The OpenRLHF emitter."""

    options: OpenRlhfOptions = field(default_factory=OpenRlhfOptions)
    name: str = "openrlhf"
    abilities: frozenset[Ability] = frozenset(
        {Ability.TASK_GPUS, Ability.MULTI_NODE, Ability.SHARED_GPUS, Ability.CPU_ROLES}
    )
    versions: tuple[str, ...] = ("0.10.1", "0.10.2", "0.11.2")

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Write `TASK/openrlhf.sh` and the scripts of the task's Ray cluster."""
        return emit_framework(self, manifest, self.options, self._translate)

    def _translate(self, manifest: Manifest, cast: Cast, reasons: list[str]) -> Translation:
        reasons += _reasons(cast)
        values = {**_counts(cast), **_modes(cast)}
        dotted = tuple(int(part) for part in self.options.version.split(".")) >= _DOTTED_SINCE
        words = []
        for key, value in values.items():
            flag = key if dotted else _UNDERSCORED.get(key, key.replace(".", "_"))
            words.append(f"--{flag}" if value is None else f"--{flag}={value}")
        notes = (
            []
            if cast.reward is not None
            else ["No reward model is planned: give a remote one or an agent function, or one is started."]
        )
        if cast.reference is None:
            notes.append("No reference model is planned: the KL coefficient is 0, or one is started.")
        return Translation(arguments=tuple(words), notes=tuple(notes))


EMITTER = OpenRlhf()


def _trained(cast: Cast) -> list[tuple[str, RoleEntry]]:
    return [(part, role) for part, role in cast.parts if part != "rollout"]


def _all_shared(cast: Cast) -> bool:
    """Say whether all DeepSpeed models take the same GPUs, and the rollout too if it is in step."""
    models = all(same_gpus(role, cast.actor) for _, role in _trained(cast))
    return models and (cast.asynchronous or cast.shared)


def _reasons(cast: Cast) -> Iterator[str]:
    for _, role in _trained(cast):
        yield from only(cast.where(role), role.layout, "tp cp", "OpenRLHF with DeepSpeed")
        if (
            role.layout is not None
            and cast.actor.layout is not None
            and (role.layout.tp, role.layout.cp) != (cast.actor.layout.tp, cast.actor.layout.cp)
        ):
            yield f"{cast.where(role)}: OpenRLHF has one tp and one cp for all DeepSpeed models"
    yield from only(cast.where(cast.rollout), cast.rollout.layout, "tp", "OpenRLHF's vLLM")
    yield from uneven(cast.where(cast.rollout), width(cast.rollout), "vLLM's tp", cast.rollout)
    if cast.streams:
        yield (
            f"{cast.task.id}: asynchronous OpenRLHF rolls out in batches, and the plan counts on a stream: "
            "plan it with coupling.rollouts batches"
        )
    if cast.shared and cast.asynchronous:
        yield f"{cast.task.id}: asynchronous OpenRLHF never has vLLM on the models' GPUs"
    if not _all_shared(cast):
        yield from _pairs(cast)


def _pairs(cast: Cast) -> Iterator[str]:
    """Without colocate_all only two pairs may share: actor with reference, critic with reward."""
    bad = []
    for number, (part, role) in enumerate(cast.parts):
        for other_part, other in cast.parts[number + 1 :]:
            allowed = {part, other_part} in ({"actor", "reference"}, {"critic", "reward"})
            if role_gpus(role) & role_gpus(other) and not (allowed and same_gpus(role, other)):
                bad.append(f"{role.id} with {other.id}")
    if bad:
        yield (
            f"{cast.task.id}: OpenRLHF colocates all models, actor with reference, or critic with reward, "
            f"each on the same GPUs; the plan has {', '.join(bad)}"
        )


def _counts(cast: Cast) -> dict[str, object]:
    values: dict[str, object] = {}
    for part, role in _trained(cast):
        shape = shape_of(role)
        if shape is not None:
            values[f"{_NAMES[part]}.num_nodes"] = len(shape.nodes)
            values[f"{_NAMES[part]}.num_gpus_per_node"] = shape.per_node
    values["vllm.num_engines"] = len(cast.rollout.replicas)
    values["vllm.tensor_parallel_size"] = width(cast.rollout)
    if cast.actor.layout is not None:
        values["ds.tensor_parallel_size"] = cast.actor.layout.tp
        values["ds.ring_attn_size"] = cast.actor.layout.cp
    return values


def _modes(cast: Cast) -> dict[str, object]:
    """Give the flags of colocation and coupling; None stands for a flag without a value."""
    values: dict[str, object] = {}
    if _all_shared(cast) and (cast.others or cast.shared):
        values["train.colocate_all"] = None
    else:
        if cast.reference is not None and same_gpus(cast.reference, cast.actor):
            values["train.colocate_actor_ref"] = None
        if cast.critic is not None and cast.reward is not None and same_gpus(cast.critic, cast.reward):
            values["train.colocate_critic_reward"] = None
    if cast.asynchronous:
        values |= {
            "train.async_enable": None,
            "train.async_queue_size": max(1, cast.task.coupling.staleness_steps),
        }
    elif cast.shared and cast.rollout.memory_mode == "sleep":
        values |= {"vllm.enable_sleep": None, "ds.enable_sleep": None}
    if cast.reference is None:
        values["algo.kl.init_coef"] = 0
    if (folder := cast.task.lifecycle.checkpoint_dir) is not None:
        values |= {"ckpt.path": folder, "ckpt.load_enable": None}
    return values

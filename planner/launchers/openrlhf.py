"""Emit OpenRLHF: command-line flags over a Ray cluster per task.

Flags have underscores up to 0.10.1 and dots from 0.10.2 on. DeepSpeed models share one
tensor-parallel and one ring-attention degree; colocated models have equal nodes and GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Annotated, Final

from msgspec import Meta

from libra_plan.planner.launchers.framework import TASK_GPUS, FrameworkEmitter, Translation
from libra_plan.planner.launchers.manifest import NodeEntry
from libra_plan.planner.launchers.ray_cluster import RayOptions
from libra_plan.planner.launchers.role_mapping import Part, RoleMapping, only_degrees

__all__ = ["EMITTER"]

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


class OpenRlhfOptions(RayOptions, frozen=True, kw_only=True):
    """`version`: the installed OpenRLHF, which decides how flags are spelled."""

    version: Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+\Z")] = "0.11.2"


class OpenRlhf(FrameworkEmitter[OpenRlhfOptions]):
    """The OpenRLHF emitter; it writes `TASK/openrlhf.sh`."""

    def refuse(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
        """List what OpenRLHF cannot express."""
        actor, rollout = roles.actor, roles.rollout
        for part in _trained(roles):
            yield from only_degrees(part, "tp cp", "OpenRLHF with DeepSpeed")
            if (part.layout.tp, part.layout.cp) != (actor.layout.tp, actor.layout.cp):
                yield f"{part.where}: OpenRLHF has one tp and one cp for all DeepSpeed models"
        yield from only_degrees(rollout, "tp", "OpenRLHF's vLLM")
        if roles.streams:
            yield (
                f"{roles.task.id}: asynchronous OpenRLHF rolls out in batches, and the plan counts on a "
                "stream: plan it with coupling.rollouts batches"
            )
        if roles.shared and roles.asynchronous:
            yield f"{roles.task.id}: asynchronous OpenRLHF never has vLLM on the models' GPUs"
        if not _all_shared(roles):
            yield from _odd_pairs(roles)

    def translate(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Translation:
        """Write the placement as flags, spelled as the version does."""
        dotted = tuple(int(part) for part in self.options.version.split(".")) >= _DOTTED_SINCE
        words = []
        for key, value in {**_counts(roles), **_modes(roles)}.items():
            flag = key if dotted else _UNDERSCORED.get(key, key.replace(".", "_"))
            words.append(f"--{flag}" if value is None else f"--{flag}={value}")
        notes = []
        if roles.reward is None:
            notes.append(
                "No reward model is planned: give a remote one or an agent function, or one is started."
            )
        if roles.reference is None:
            notes.append("No reference model is planned: the KL coefficient is 0, or one is started.")
        return Translation(tuple(words), notes=tuple(notes))


EMITTER = OpenRlhf("openrlhf", ("0.10.1", "0.10.2", "0.11.2"), TASK_GPUS, OpenRlhfOptions())


def _trained(roles: RoleMapping) -> tuple[Part, ...]:
    """Return the parts that run under DeepSpeed."""
    return (roles.actor, *roles.others)


def _all_shared(roles: RoleMapping) -> bool:
    """Whether all DeepSpeed models take the same GPUs, and the rollout too if it is in step."""
    models = all(part.is_on(roles.actor) for part in _trained(roles))
    return models and (roles.asynchronous or roles.shared)


def _odd_pairs(roles: RoleMapping) -> Iterator[str]:
    """Without colocate_all only two pairs may share: actor with reference, critic with reward."""
    bad = []
    for one, other in combinations(roles.parts, 2):
        allowed = {one.name, other.name} in ({"actor", "reference"}, {"critic", "reward"})
        if one.meets(other) and not (allowed and one.is_on(other)):
            bad.append(f"{one.role.id} with {other.role.id}")
    if bad:
        yield (
            f"{roles.task.id}: OpenRLHF colocates all models, actor with reference, or critic with reward, "
            f"each on the same GPUs; the plan has {', '.join(bad)}"
        )


def _counts(roles: RoleMapping) -> dict[str, object]:
    values: dict[str, object] = {}
    for part in _trained(roles):
        values[f"{_NAMES[part.name]}.num_nodes"] = len(part.nodes)
        values[f"{_NAMES[part.name]}.num_gpus_per_node"] = part.per_node
    values["vllm.num_engines"] = len(roles.rollout.role.replicas)
    values["vllm.tensor_parallel_size"] = roles.rollout.width
    values["ds.tensor_parallel_size"] = roles.actor.layout.tp
    values["ds.ring_attn_size"] = roles.actor.layout.cp
    return values


def _modes(roles: RoleMapping) -> dict[str, object]:
    """Map the flags of colocation and coupling to values; None stands for a flag without a value."""
    values: dict[str, object] = {}
    if _all_shared(roles) and (roles.others or roles.shared):
        values["train.colocate_all"] = None
    else:
        if roles.reference is not None and roles.reference.is_on(roles.actor):
            values["train.colocate_actor_ref"] = None
        if roles.critic is not None and roles.reward is not None and roles.critic.is_on(roles.reward):
            values["train.colocate_critic_reward"] = None
    if roles.asynchronous:
        values |= {
            "train.async_enable": None,
            "train.async_queue_size": max(1, roles.task.coupling.staleness_steps),
        }
    elif roles.shared and roles.rollout.role.memory_mode == "sleep":
        values |= {"vllm.enable_sleep": None, "ds.enable_sleep": None}
    if roles.reference is None:
        values["algo.kl.init_coef"] = 0
    if (folder := roles.task.lifecycle.checkpoint_dir) is not None:
        values |= {"ckpt.path": folder, "ckpt.load_enable": None}
    return values

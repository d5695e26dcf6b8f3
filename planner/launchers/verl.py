"""Emit verl: Hydra overrides over a Ray cluster per task, and the topology block of its RFC 7269.

verl knows pools of equal nodes, `[n_gpus_per_node] * nnodes`: one for actor, reference, critic and
(hybrid) rollout; a second for a standalone rollout; a third for a reward model. It does not check
that tensor-parallel degrees divide a pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from libra_plan.planner.launchers.base import Ability
from libra_plan.planner.launchers.framework import FrameworkOptions, Translation, emit_framework
from libra_plan.planner.launchers.manifest import Degrees, Manifest, RoleEntry
from libra_plan.planner.launchers.role_mapping import Cast, colocated, only
from libra_plan.planner.launchers.shapes import Shape, shape_of, task_nodes
from libra_plan.planner.launchers.shell import hydra_text, to_yaml

__all__ = ["EMITTER", "Verl", "VerlOptions"]

_CPUS_PER_GPU = 3  # a placement-group bundle is one GPU and three CPUs; with fewer it waits for ever
_MEGATRON = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}


class VerlOptions(FrameworkOptions, frozen=True, kw_only=True):
    """`engine`: what trains; `checkpoint_engine`: how weights go to a standalone rollout."""

    engine: Literal["fsdp", "megatron"] = "fsdp"
    checkpoint_engine: Literal["nccl", "nixl", "mooncake"] = "nccl"


@dataclass(frozen=True)
class Verl:
    """The verl emitter."""

    options: VerlOptions = field(default_factory=VerlOptions)
    name: str = "verl"
    abilities: frozenset[Ability] = frozenset(
        {Ability.TASK_GPUS, Ability.MULTI_NODE, Ability.SHARED_GPUS, Ability.CPU_ROLES}
    )
    versions: tuple[str, ...] = ("0.9.1",)

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Write `TASK/verl.sh`, `topology.yaml` and the scripts of the task's Ray cluster."""
        return emit_framework(self, manifest, self.options, self._translate)

    def _translate(self, manifest: Manifest, cast: Cast, reasons: list[str]) -> Translation:
        reasons += _reasons(cast, self.options)
        actor, rollout = shape_of(cast.actor), shape_of(cast.rollout)
        if actor is None or rollout is None:
            return Translation()
        keys = {
            **_pools(cast, actor, rollout, self.options),
            **_training(cast, self.options),
            **_rollout("actor_rollout_ref.rollout", cast.rollout),
            **_reward(cast),
        }
        if cast.task.lifecycle.checkpoint_dir is not None:
            keys |= {"trainer.resume_mode": "auto"}
        engine = ("model_engine=megatron",) if self.options.engine == "megatron" else ()
        return Translation(
            arguments=(*engine, *(f"{key}={value}" for key, value in keys.items()), *_folder(cast)),
            files={"topology.yaml": _topology(manifest, cast)},
            notes=("topology.yaml says it in the form that RFC 7269 proposes; verl 0.9.1 does not read it.",),
            least_cpus_per_gpu=_CPUS_PER_GPU,
        )


EMITTER = Verl()


def _reasons(cast: Cast, options: VerlOptions) -> Iterator[str]:
    yield from colocated(cast, "verl", "reference", "critic")
    allowed = "tp pp cp ep" if options.engine == "megatron" else "cp"
    for part, role in cast.parts:
        if part in ("actor", "reference", "critic"):
            yield from only(cast.where(role), role.layout, allowed, f"verl with {options.engine}")
        else:
            yield from only(cast.where(role), role.layout, "tp ep", "verl")
            yield from _experts(cast.where(role), role.layout)
    if not cast.shared:
        yield from _separate(cast)
    if cast.reward is not None and not _own_pool(cast) and _gpus(cast.reward) != _gpus(cast.actor):
        yield f"{cast.where(cast.reward)}: verl gives a reward model all of the actor's GPUs or its own pool"


def _separate(cast: Cast) -> Iterator[str]:
    if _gpus(cast.actor) & _gpus(cast.rollout):
        yield f"{cast.where(cast.rollout)}: verl has the rollout on all of the actor's GPUs or on none"
    if not cast.asynchronous:
        yield f"{cast.task.id}: verl runs a standalone rollout only asynchronously, the plan is synchronous"
    if cast.reward is not None and not _own_pool(cast):
        yield f"{cast.where(cast.reward)}: beside a standalone rollout verl wants the reward in its own pool"


def _experts(where: str, layout: Degrees | None) -> Iterator[str]:
    if layout is not None and layout.ep not in (1, layout.tp):
        yield f"{where}: verl wants ep = tp·dp of an engine, here {layout.tp}, and the layout has {layout.ep}"


def _gpus(role: RoleEntry) -> set[tuple[str, int]]:
    return {(member.node, gpu) for member in role.members for gpu in member.gpus}


def _own_pool(cast: Cast) -> bool:
    taken = _gpus(cast.actor) | _gpus(cast.rollout)
    return cast.reward is not None and not _gpus(cast.reward) & taken


def _pools(cast: Cast, actor: Shape, rollout: Shape, options: VerlOptions) -> dict[str, object]:
    keys: dict[str, object] = {
        "trainer.nnodes": len(actor.nodes),
        "trainer.n_gpus_per_node": actor.per_node,
        "trainer.use_v1": "true",
    }
    free = "true" if cast.rollout.memory_mode == "sleep" else "false"
    if cast.shared:
        mode = "colocate_async" if cast.asynchronous else "sync"
        keys |= {"trainer.v1.trainer_mode": mode, "actor_rollout_ref.rollout.free_cache_engine": free}
    else:
        keys |= {
            "trainer.v1.trainer_mode": "separate_async",
            # Else verl puts rollout replicas on the actor's GPUs as well.
            "actor_rollout_ref.hybrid_engine": "false",
            "actor_rollout_ref.rollout.nnodes": len(rollout.nodes),
            "actor_rollout_ref.rollout.n_gpus_per_node": rollout.per_node,
            "actor_rollout_ref.rollout.checkpoint_engine.backend": options.checkpoint_engine,
        }
    if cast.asynchronous:
        keys["trainer.v1.sampler.max_off_policy_threshold"] = cast.task.coupling.staleness_steps
    return keys


def _training(cast: Cast, options: VerlOptions) -> dict[str, object]:
    keys: dict[str, object] = {}
    homes = {
        "actor": "actor_rollout_ref.actor",
        "reference": "actor_rollout_ref.ref",
        "critic": "critic",
    }
    for part, role in cast.parts:
        if part not in homes or role.layout is None:
            continue
        if options.engine == "megatron":
            for name, key in _MEGATRON.items():
                keys[f"{homes[part]}.megatron.{key}"] = getattr(role.layout, name)
        else:
            keys[f"{homes[part]}.ulysses_sequence_parallel_size"] = role.layout.cp
    return keys


def _rollout(home: str, role: RoleEntry) -> dict[str, object]:
    tp, ep = (1, 1) if role.layout is None else (role.layout.tp, role.layout.ep)
    return {
        f"{home}.tensor_model_parallel_size": tp,
        f"{home}.data_parallel_size": 1,
        f"{home}.expert_parallel_size": ep,
    }


def _reward(cast: Cast) -> dict[str, object]:
    shape = None if cast.reward is None else shape_of(cast.reward)
    if cast.reward is None or shape is None:
        return {"reward.reward_model.enable_resource_pool": "false"}
    keys: dict[str, object] = {"reward.reward_model.enable_resource_pool": str(_own_pool(cast)).lower()}
    if _own_pool(cast):
        keys["reward.reward_model.nnodes"] = len(shape.nodes)
        keys["reward.reward_model.n_gpus_per_node"] = shape.per_node
    return keys | _rollout("reward.reward_model.rollout", cast.reward)


def _folder(cast: Cast) -> tuple[str, ...]:
    """Name the checkpoint folder."""
    folder = cast.task.lifecycle.checkpoint_dir
    return () if folder is None else (f"trainer.default_local_dir={hydra_text(folder)}",)


def _topology(manifest: Manifest, cast: Cast) -> str:
    nodes = task_nodes(manifest, cast.task)
    homes = {
        "actor": "actor_rollout_ref",
        "rollout": "actor_rollout_ref",
        "reference": "actor_rollout_ref",
        "critic": "critic",
        "reward": "reward",
    }
    pools: dict[frozenset[tuple[str, int]], str] = {}
    models = []
    for part, role in cast.parts:
        pool = pools.setdefault(frozenset(_gpus(role)), f"{part}_pool")
        worker = "ref" if part == "reference" else part
        models.append({"name": role.id, "worker": worker, "config_key": homes[part], "resource_pool": pool})
    shapes = {pools[frozenset(_gpus(role))]: shape_of(role) for _, role in cast.parts}
    cluster = f"{cast.task.id}-g{cast.task.generation}"
    per_node = max(
        len({gpu for role in cast.task.roles for at, gpu in _gpus(role) if at == node.id}) for node in nodes
    )
    return to_yaml(
        ("The topology block of verl-project/verl issue 7269, an open proposal.",),
        {
            "topology": {
                "clusters": [{"name": cluster, "nnodes": len(nodes), "n_gpus_per_node": per_node}],
                "device_pools": [
                    {
                        "name": name,
                        "cluster": cluster,
                        "nnodes": len(shape.nodes),
                        "n_gpus_per_node": shape.per_node,
                    }
                    for name, shape in shapes.items()
                    if shape is not None
                ],
                "models": models,
            }
        },
    )

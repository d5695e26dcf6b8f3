"""Emit verl: Hydra overrides over a Ray cluster per task, and the topology block of its RFC 7269.

verl knows pools of equal nodes, `[n_gpus_per_node] * nnodes`: one for actor, reference, critic and
(hybrid) rollout; a second for a standalone rollout; a third for a reward model. It does not check
that tensor-parallel degrees divide a pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from libra_plan.planner.launchers.framework import (
    TASK_GPUS,
    FrameworkEmitter,
    Translation,
    assignments,
    megatron_degrees,
)
from libra_plan.planner.launchers.manifest import NodeEntry
from libra_plan.planner.launchers.ray_cluster import RayOptions
from libra_plan.planner.launchers.role_mapping import Part, RoleMapping, colocated, only_degrees
from libra_plan.planner.launchers.shell import hydra_text, to_yaml

__all__ = ["EMITTER"]

_HOMES = {"actor": "actor_rollout_ref.actor", "reference": "actor_rollout_ref.ref", "critic": "critic"}
_CONFIG_KEYS = {"critic": "critic", "reward": "reward"}  # all others: actor_rollout_ref


class VerlOptions(RayOptions, frozen=True, kw_only=True):
    """`engine`: what trains; `checkpoint_engine`: how weights go to a standalone rollout."""

    engine: Literal["fsdp", "megatron"] = "fsdp"
    checkpoint_engine: Literal["nccl", "nixl", "mooncake"] = "nccl"


class Verl(FrameworkEmitter[VerlOptions]):
    """The verl emitter; it writes `TASK/verl.sh` and `topology.yaml`."""

    # A placement-group bundle is one GPU and three CPUs; with fewer it waits for ever.
    least_cpus_per_gpu: ClassVar[int] = 3

    def refuse(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
        """List what verl cannot express."""
        yield from colocated(roles, "verl", "reference", "critic")
        allowed = "tp pp cp ep" if self.options.engine == "megatron" else "cp"
        for part in roles.parts:
            if part.name in _HOMES:
                yield from only_degrees(part, allowed, f"verl with {self.options.engine}")
                continue
            yield from only_degrees(part, "tp ep", "verl")
            tp, ep = part.layout.tp, part.layout.ep
            if ep not in (1, tp):
                yield f"{part.where}: verl wants ep = tp·dp of an engine, here {tp}, and the layout has {ep}"
        reward = None if _has_own_pool(roles) else roles.reward
        if not roles.shared:
            if roles.actor.meets(roles.rollout):
                yield f"{roles.rollout.where}: verl has the rollout on all of the actor's GPUs or on none"
            if not roles.asynchronous:
                yield (
                    f"{roles.task.id}: verl runs a standalone rollout only asynchronously, "
                    "the plan is synchronous"
                )
            if reward is not None:
                yield f"{reward.where}: beside a standalone rollout verl wants the reward in its own pool"
        if reward is not None and not reward.is_on(roles.actor):
            yield f"{reward.where}: verl gives a reward model all of the actor's GPUs or its own pool"

    def translate(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Translation:
        """Write pools, layouts and engines as overrides."""
        engine = ("model_engine=megatron",) if self.options.engine == "megatron" else ()
        values = {
            **self._pools(roles),
            **self._training(roles),
            **_engine("actor_rollout_ref.rollout", roles.rollout),
            **_reward(roles),
        }
        if (folder := roles.task.lifecycle.checkpoint_dir) is not None:
            values |= {"trainer.resume_mode": "auto", "trainer.default_local_dir": hydra_text(folder)}
        return Translation(
            (*engine, *assignments(values)),
            files={"topology.yaml": _topology(roles, nodes)},
            notes=("topology.yaml says it in the form that RFC 7269 proposes; verl 0.9.1 does not read it.",),
        )

    def _pools(self, roles: RoleMapping) -> dict[str, object]:
        home = "actor_rollout_ref"
        values: dict[str, object] = {
            "trainer.nnodes": len(roles.actor.nodes),
            "trainer.n_gpus_per_node": roles.actor.per_node,
            "trainer.use_v1": "true",
        }
        if roles.shared:
            asleep = roles.rollout.role.memory_mode == "sleep"
            values |= {
                "trainer.v1.trainer_mode": "colocate_async" if roles.asynchronous else "sync",
                f"{home}.rollout.free_cache_engine": str(asleep).lower(),
            }
        else:
            values |= {
                "trainer.v1.trainer_mode": "separate_async",
                # Else verl puts rollout replicas on the actor's GPUs as well.
                f"{home}.hybrid_engine": "false",
                f"{home}.rollout.nnodes": len(roles.rollout.nodes),
                f"{home}.rollout.n_gpus_per_node": roles.rollout.per_node,
                f"{home}.rollout.checkpoint_engine.backend": self.options.checkpoint_engine,
            }
        if roles.asynchronous:
            values["trainer.v1.sampler.max_off_policy_threshold"] = roles.task.coupling.staleness_steps
        return values

    def _training(self, roles: RoleMapping) -> dict[str, object]:
        values: dict[str, object] = {}
        for part in roles.parts:
            home = _HOMES.get(part.name)
            if home is not None and self.options.engine == "megatron":
                values |= megatron_degrees(part.layout, f"{home}.megatron.")
            elif home is not None:
                values[f"{home}.ulysses_sequence_parallel_size"] = part.layout.cp
        return values


EMITTER = Verl("verl", ("0.9.1",), TASK_GPUS, VerlOptions())


def _has_own_pool(roles: RoleMapping) -> bool:
    """Whether a reward model has GPUs for itself."""
    reward = roles.reward
    return reward is not None and not reward.meets(roles.actor) and not reward.meets(roles.rollout)


def _engine(home: str, part: Part) -> dict[str, object]:
    return {
        f"{home}.tensor_model_parallel_size": part.layout.tp,
        f"{home}.data_parallel_size": 1,
        f"{home}.expert_parallel_size": part.layout.ep,
    }


def _reward(roles: RoleMapping) -> dict[str, object]:
    home, own_pool = "reward.reward_model", _has_own_pool(roles)
    values: dict[str, object] = {f"{home}.enable_resource_pool": str(own_pool).lower()}
    if roles.reward is None:
        return values
    if own_pool:
        values[f"{home}.nnodes"] = len(roles.reward.nodes)
        values[f"{home}.n_gpus_per_node"] = roles.reward.per_node
    return values | _engine(f"{home}.rollout", roles.reward)


def _topology(roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> str:
    cluster = f"{roles.task.id}-g{roles.task.generation}"
    names: dict[frozenset[tuple[str, int]], str] = {}
    pools: dict[str, object] = {}
    models = []
    for part in roles.parts:
        name = names.setdefault(part.gpus, f"{part.name}_pool")
        pools[name] = {
            "name": name,
            "cluster": cluster,
            "nnodes": len(part.nodes),
            "n_gpus_per_node": part.per_node,
        }
        models.append(
            {
                "name": part.role.id,
                "worker": "ref" if part.name == "reference" else part.name,
                "config_key": _CONFIG_KEYS.get(part.name, "actor_rollout_ref"),
                "resource_pool": name,
            }
        )
    per_node = max(len(roles.task.gpus_on(node.id)) for node in nodes)
    return to_yaml(
        ("The topology block of verl-project/verl issue 7269, an open proposal.",),
        {
            "topology": {
                "clusters": [{"name": cluster, "nnodes": len(nodes), "n_gpus_per_node": per_node}],
                "device_pools": list(pools.values()),
                "models": models,
            }
        },
    )

"""What is emitted for verl."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path

import launch_cases
import pytest
import yaml
from framework_cases import arguments, emit, emitted, recorded, values

from libra_plan.planner.launchers.role_mapping import map_roles


@pytest.mark.parametrize("engine", ["fsdp", "megatron"])
def test_every_override_is_a_key_of_the_framework(engine):
    """A key that the framework does not know stops the job only when it has its GPUs."""
    known = recorded("verl_keys") | {"model_engine"}
    seen = 0
    for files, task in emitted("verl", engine=engine):
        keys = {word.partition("=")[0] for word in arguments(files, task.id, "verl")}
        assert keys <= known, keys - known
        seen += 1
    assert seen >= 4


@pytest.mark.parametrize("engine", ["fsdp", "megatron"])
def test_verl_composes_what_it_is_given(engine):
    """Hydra with verl's own configuration is the judge of keys and of their syntax."""
    hydra = pytest.importorskip("hydra", reason="Hydra is not installed")
    found = importlib.util.find_spec("verl")
    if found is None or found.origin is None:
        pytest.skip("verl is not installed (pip install --no-deps verl)")
    folder = str(Path(found.origin).parent / "trainer" / "config")
    with hydra.initialize_config_dir(folder, version_base=None):
        for files, task in emitted("verl", engine=engine):
            words = arguments(files, task.id, "verl")
            config = hydra.compose("ppo_trainer", overrides=words)
            roles = map_roles(task, "verl", [])
            pool = config.trainer.nnodes * config.trainer.n_gpus_per_node
            assert pool == sum(len(member.gpus) for member in roles.actor.role.members)
            if task.lifecycle.checkpoint_dir is not None:
                assert config.trainer.default_local_dir == task.lifecycle.checkpoint_dir


def test_verl_modes_follow_pools_and_coupling():
    """A standalone rollout is a mode of its own, and must not have replicas on the actor's GPUs too."""
    together = values(emit("verl", launch_cases.shared_all()), "grpo", "verl")
    assert together["trainer.v1.trainer_mode"] == "sync"
    assert together["actor_rollout_ref.rollout.free_cache_engine"] == "true"
    apart = values(emit("verl", launch_cases.ahead()), "ahead", "verl")
    assert apart["trainer.v1.trainer_mode"] == "separate_async"
    assert apart["actor_rollout_ref.hybrid_engine"] == "false"
    assert apart["trainer.v1.sampler.max_off_policy_threshold"] == "2"
    reward = values(emit("verl", launch_cases.ppo()), "ppo", "verl")
    assert reward["reward.reward_model.enable_resource_pool"] == "true"
    assert reward["reward.reward_model.n_gpus_per_node"] == "4"


def test_the_topology_block_of_verl_adds_up():
    """A088: one could not tell from a configuration which model runs on which GPUs."""
    for files, task in emitted("verl"):
        block = yaml.safe_load(files[f"{task.id}/topology.yaml"])["topology"]
        pools = {pool["name"]: pool["nnodes"] * pool["n_gpus_per_node"] for pool in block["device_pools"]}
        gpus = {gpu for role in task.roles for replica in role.replicas for gpu in replica}
        (cluster,) = block["clusters"]
        assert cluster["nnodes"] * cluster["n_gpus_per_node"] == len(gpus) == sum(pools.values())
        sizes = {role.id: sum(len(member.gpus) for member in role.members) for role in task.roles}
        assert {model["name"]: pools[model["resource_pool"]] for model in block["models"]} == {
            name: size for name, size in sizes.items() if size
        }


def test_verl_has_three_cpus_for_every_gpu():
    """With fewer its placement group waits for ever, without a word."""
    text = emit("verl", launch_cases.shared_all())["grpo/ray/n0.sh"]
    words = shlex.split(text.splitlines()[-1])
    assert int(words[words.index("--num-cpus") + 1]) >= 3 * 8

"""What is emitted for NeMo-RL."""

from __future__ import annotations

import launch_cases
import pytest
from framework_cases import arguments, emit, emitted, recorded, values


@pytest.mark.parametrize("engine", ["dtensor", "megatron"])
def test_every_override_is_a_key_of_the_framework(engine):
    """NeMo-RL takes unknown keys in silence."""
    known = recorded("nemo_rl_keys") | {"model_engine"}
    seen = 0
    for files, task in emitted("nemo-rl", engine=engine):
        keys = {word.partition("=")[0] for word in arguments(files, task.id, "nemo-rl")}
        assert keys <= known, keys - known
        seen += 1
    assert seen >= 4


def test_generation_is_on_the_policys_gpus_or_on_its_own():
    """Colocated by mistake, generation would wait for training, and half of the GPUs stand idle."""
    together = values(emit("nemo-rl", launch_cases.shared_all()), "grpo", "nemo-rl")
    assert together["policy.generation.colocated.enabled"] == "true"
    assert not [key for key in together if ".colocated.resources." in key]
    apart = values(emit("nemo-rl", launch_cases.ahead()), "ahead", "nemo-rl")
    assert apart["policy.generation.colocated.enabled"] == "false"
    assert apart["policy.generation.colocated.resources.num_nodes"] == "null"  # part of the one node
    assert apart["grpo.async_grpo.max_trajectory_age_steps"] == "2"
    served = int(apart["policy.generation.colocated.resources.gpus_per_node"])
    (task,) = launch_cases.ahead().spec.tasks
    (rollout,) = [role for role in task.roles if role.kind == "rollout"]
    assert served == len(rollout.ranks)


def test_one_engine_trains_and_the_other_is_off():
    """Both are in NeMo-RL's own example, and with both on it stops."""
    for engine, on, off in (("dtensor", "dtensor", "megatron"), ("megatron", "megatron", "dtensor")):
        said = values(emit("nemo-rl", launch_cases.shared_all(), engine=engine), "grpo", "nemo-rl")
        assert said[f"policy.{on}_cfg.enabled"] == "true"
        assert said[f"policy.{off}_cfg.enabled"] == "false"

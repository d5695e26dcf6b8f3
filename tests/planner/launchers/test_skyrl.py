"""What is emitted for SkyRL."""

from __future__ import annotations

import launch_cases
import pytest
from framework_cases import arguments, emit, emitted, recorded, values


@pytest.mark.parametrize("engine", ["fsdp", "megatron"])
def test_every_override_is_a_key_of_the_framework(engine):
    """A key that the framework does not know stops the job only when it has its GPUs."""
    known = recorded("skyrl_keys") | {"model_engine"}
    seen = 0
    for files, task in emitted("skyrl", engine=engine):
        keys = {word.partition("=")[0] for word in arguments(files, task.id, "skyrl")}
        assert keys <= known, keys - known
        seen += 1
    assert seen >= 4


def test_engines_add_up_to_the_rollouts_gpus():
    """SkyRL places engines by number and tensor parallel degree alone."""
    for files, task in emitted("skyrl"):
        said = values(files, task.id, "skyrl")
        home = "generator.inference_engine"
        width = int(said[f"{home}.tensor_parallel_size"]) * int(said[f"{home}.pipeline_parallel_size"])
        (rollout,) = [role for role in task.roles if role.kind == "rollout"]
        assert int(said[f"{home}.num_engines"]) * width == len(rollout.ranks)


def test_colocation_follows_the_plan():
    """With colocate_all the engines sleep while training works."""
    together = values(emit("skyrl", launch_cases.shared_all()), "grpo", "skyrl")
    apart = values(emit("skyrl", launch_cases.ahead()), "ahead", "skyrl")
    assert together["trainer.placement.colocate_all"] == "true"
    assert apart["trainer.placement.colocate_all"] == "false"

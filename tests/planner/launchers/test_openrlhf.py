"""What is emitted for OpenRLHF."""

from __future__ import annotations

import launch_cases
import pytest
from framework_cases import arguments, emit, emitted, recorded, values


@pytest.mark.parametrize("version", ["0.10.1", "0.10.2", "0.11.2"])
def test_every_flag_is_one_of_the_framework(version):
    """OpenRLHF changed the spelling of all of its flags from one patch release to the next."""
    known = recorded(f"openrlhf_{version}")
    seen = 0
    for files, task in emitted("openrlhf", version=version):
        flags = {word.partition("=")[0] for word in arguments(files, task.id, "openrlhf")}
        assert flags <= known, flags - known
        seen += 1
    assert seen >= 3


def test_openrlhf_starts_no_model_that_is_not_planned():
    """Its reference would otherwise stand on 8 GPUs per node by default."""
    apart = values(emit("openrlhf", launch_cases.ahead()), "ahead", "openrlhf")
    assert apart["algo.kl.init_coef"] == "0"
    assert "train.async_enable" in apart
    together = values(emit("openrlhf", launch_cases.shared_all()), "grpo", "openrlhf")
    assert "train.colocate_all" in together
    engines = int(together["vllm.num_engines"]) * int(together["vllm.tensor_parallel_size"])
    assert engines == int(together["actor.num_nodes"]) * int(together["actor.num_gpus_per_node"])

"""What is emitted for AReaL."""

from __future__ import annotations

import math
import re

import pytest
from framework_cases import arguments, emitted, recorded, values


@pytest.mark.parametrize("engine", ["fsdp", "megatron", "archon"])
def test_every_override_is_a_key_of_the_framework(engine):
    """A key that the framework does not know stops the job only when it has its GPUs."""
    known = recorded("areal_keys") | {"model_engine"}
    seen = 0
    for files, task in emitted("areal", engine=engine):
        keys = {word.partition("=")[0] for word in arguments(files, task.id, "areal")}
        assert keys <= known, keys - known
        seen += 1
    assert seen >= 4


def test_areal_dimensions_multiply_to_the_world():
    """The product of data, tensor, pipeline and context parallel degrees is the number of GPUs."""
    for files, task in emitted("areal"):
        given = values(files, task.id, "areal")
        for name, role in (("actor", "actor"), ("rollout", "rollout")):
            spec = given[f"{name}.backend"].strip("'").partition(":")[2]
            product = math.prod(
                int(count) for kind, count in re.findall(r"([a-z])([0-9]+)", spec) if kind != "e"
            )
            entry = next(one for one in task.roles if one.id == role)
            assert product == sum(len(member.gpus) for member in entry.members)

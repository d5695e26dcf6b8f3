"""Warnings about files that are read all the same."""

from __future__ import annotations

import msgspec
import pytest

from libra_plan.profiles.catalog import load_folder, shipped_folder
from libra_plan.profiles.plausibility import (
    longest_measured,
    mixed_models,
    unmeasured_asks,
    unmeasured_classes,
)
from libra_plan.profiles.schema import ClusterFile, LayoutSpec, NodeSpec

SHIPPED = load_folder(shipped_folder())
replace = msgspec.structs.replace


def workload_with(role_id, **changes):
    """Change one role of the shipped workload's first task."""
    task = SHIPPED.workload.tasks[0]
    roles = tuple(replace(role, **changes) if role.id == role_id else role for role in task.roles)
    return replace(SHIPPED.workload, tasks=(replace(task, roles=roles),))


def test_the_shipped_workload_asks_for_nothing_odd():
    """What users copy must not warn."""
    assert not list(mixed_models(SHIPPED.workload, SHIPPED.profiles))
    assert not list(unmeasured_asks(SHIPPED.workload, SHIPPED.profiles))


def test_an_actor_of_another_model_than_its_rollout_is_told():
    """A slip of the profile's name would train one model and roll out another."""
    workload = workload_with("actor", profiles=("h200-qwen2.5-0.5b-train",))
    (line,) = mixed_models(workload, SHIPPED.profiles)
    assert "actor qwen2.5-0.5b" in line
    assert "rollout qwen2.5-7b" in line


def test_a_layout_and_a_micro_batch_beyond_the_points_are_told():
    """`solve` refuses them without --allow-prior, long after the file was written."""
    longest = longest_measured(SHIPPED.profiles["h200-qwen2.5-7b-train"].points)
    within = workload_with("actor", profiles=("h200-qwen2.5-7b-train",), micro_batch_tokens=2 * longest)
    assert not list(unmeasured_asks(within, SHIPPED.profiles))
    beyond = workload_with(
        "actor",
        profiles=("h200-qwen2.5-7b-train",),
        micro_batch_tokens=2 * longest + 1,
        layouts=(LayoutSpec(tp=4),),
    )
    lines = list(unmeasured_asks(beyond, SHIPPED.profiles))
    assert len(lines) == 2
    assert f"up to {longest} tokens" in lines[0]
    assert "{tp: 4, pp: 1, cp: 1, ep: 1}" in lines[1]


@pytest.mark.parametrize(
    ("classes", "measured", "said"),
    [
        (("h200_smx",), ("h100_sxm", "h200_sxm"), ["did you mean `h200_sxm`?"]),
        (("b300", "h200_sxm"), ("h200_sxm",), ["measured: h200_sxm"]),
        (("h200_sxm",), ("h200_sxm",), []),
    ],
)
def test_a_class_nobody_measured_is_told_with_the_nearest(classes, measured, said) -> None:
    """A misspelt class would leave its GPUs idle without a word."""
    nodes = tuple(NodeSpec(id=f"n{at}", gpu_class=name, gpu_count=1) for at, name in enumerate(classes))
    lines = unmeasured_classes(ClusterFile(schema_version=1, nodes=nodes), measured)
    assert len(lines) == len(said)
    for line, part in zip(lines, said, strict=True):
        assert line.endswith(part)

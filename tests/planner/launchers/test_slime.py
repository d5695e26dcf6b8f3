"""What is emitted for slime."""

from __future__ import annotations

import plans
import pytest
import yaml
from framework_cases import arguments, emit, emitted, recorded, values

from libra_plan.errors import ManifestError


def test_every_flag_is_one_of_the_framework():
    """A flag that the framework does not know stops the job only when it has its GPUs."""
    known = recorded("slime_flags")
    seen = 0
    for files, task in emitted("slime"):
        flags = {word.partition("=")[0] for word in arguments(files, task.id, "slime")}
        assert flags <= known, flags - known
        seen += 1
    assert seen >= 3


def test_slime_orders_nodes_by_address_as_numbers():
    """10.0.0.10 comes after 10.0.0.9, whatever the alphabet says."""
    nodes = (plans.node("n0", 2, "10.0.0.9"), plans.node("n1", 2, "10.0.0.10"))
    task = plans.running(
        "t",
        [plans.role("actor", [["n0:0"], ["n0:1"]])],
        [plans.role("rollout", [["n1:0", "n1:1"]], tp=2)],
    )
    files = emit("slime", plans.manifest_of(plans.Cluster("lab", nodes), task))
    assert values(files, "t", "slime")["rollout-num-gpus-per-engine"] == "2"
    turned = (plans.node("n0", 2, "10.0.0.10"), plans.node("n1", 2, "10.0.0.9"))
    with pytest.raises(ManifestError, match="slime trains on the lowest GPUs"):
        emit("slime", plans.manifest_of(plans.Cluster("lab", turned), task))


def test_slime_engine_groups_hold_all_of_the_rollout():
    """A001, A006: GPUs per node are said, never left at 8, and groups add up."""
    for files, task in emitted("slime"):
        (engine,) = yaml.safe_load(files[f"{task.id}/sglang.yaml"])["sglang"]
        given = values(files, task.id, "slime")
        assert sum(group["num_gpus"] for group in engine["server_groups"]) == int(given["rollout-num-gpus"])
        assert "num-gpus-per-node" in given

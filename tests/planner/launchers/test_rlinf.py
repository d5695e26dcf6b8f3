"""What is emitted for RLinf."""

from __future__ import annotations

import launch_cases
import plans
import pytest
import yaml
from framework_cases import emit

from libra_plan.errors import ManifestError


def test_rlinf_spans_are_the_plan():
    """RLinf takes numbers of GPUs that it counts itself."""
    document = yaml.safe_load(emit("rlinf", launch_cases.whole_nodes())["wide/rlinf.yaml"])
    assert document["cluster"] == {
        "num_nodes": 3,
        "component_placement": {"actor": "0-15", "rollout": "16-23", "reward": "0-15"},
    }
    parse = pytest.importorskip(
        "rlinf.scheduler.cluster.utils", reason="RLinf is not installed"
    ).parse_rank_config
    assert parse("16-23", list(range(24))) == list(range(16, 24))


def test_rlinf_refuses_gaps_and_half_shared_sets():
    """Its own assertions would end the run after the model is loaded."""
    task = plans.running(
        "t", [plans.role("actor", [["n0:0"], ["n0:2"]])], [plans.role("rollout", [["n0:1"]])]
    )
    with pytest.raises(ManifestError, match="contiguous"):
        emit("rlinf", plans.manifest_of(plans.cluster(4), task))
    with pytest.raises(ManifestError, match="all components or none"):
        emit("rlinf", plans.colocated())

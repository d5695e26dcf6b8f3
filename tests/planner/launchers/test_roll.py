"""What is emitted for ROLL."""

from __future__ import annotations

import re

import launch_cases
import pytest
import yaml
from framework_cases import emit

from libra_plan.errors import ManifestError


def test_roll_maps_literal_lists_of_whole_nodes():
    """ROLL evaluates the text as Python."""
    document = yaml.safe_load(emit("roll", launch_cases.whole_nodes())["wide/roll.yaml"])
    assert document["num_gpus_per_node"] == 8
    assert re.fullmatch(r"\[[0-9, ]+\]", document["actor_infer"]["device_mapping"])
    assert document["actor_infer"]["device_mapping"] == str(list(range(16, 24)))
    assert len(range(16, 24)) % document["actor_infer"]["num_gpus_per_worker"] == 0
    with pytest.raises(ManifestError, match="whole nodes"):
        emit("roll", launch_cases.gaps())

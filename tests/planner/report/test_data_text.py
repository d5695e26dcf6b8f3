"""Results as JSON and YAML are read by scripts: both hold the same."""

from __future__ import annotations

import json

import pytest
import yaml
from plans import single_node

from libra_plan.planner.launchers.document import manifest_to_json, manifest_to_yaml
from libra_plan.planner.report.data_text import as_data, data_text


def test_both_forms_hold_the_same():
    """A script must be able to change from one to the other."""
    value = {"a": [1, None, "ü", 2.5], "b": {"c": "yes"}}
    assert json.loads(data_text(value, "json")) == value
    assert yaml.safe_load(data_text(value, "yaml")) == value


def test_what_json_cannot_hold_is_refused():
    """NaN is no JSON, though Python would write it."""
    with pytest.raises(ValueError, match="JSON"):
        data_text({"a": float("nan")}, "json")


def test_a_manifest_is_written_as_it_is_kept():
    """What is printed may be saved and read again: its digest must hold."""
    manifest = single_node()
    assert data_text(manifest, "json") + "\n" == manifest_to_json(manifest)
    assert data_text(manifest, "yaml") + "\n" == manifest_to_yaml(manifest)
    assert as_data(manifest)["kind"] == "PlacementManifest"

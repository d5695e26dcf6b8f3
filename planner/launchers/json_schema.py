"""Write the JSON Schema (2020-12) of the manifest: `python -m libra_plan.planner.launchers.json_schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from libra_plan.planner.launchers.manifest import Manifest

__all__ = ["SCHEMA_FILE", "manifest_schema"]

SCHEMA_FILE = Path(__file__).with_name("manifest.schema.json")


def manifest_schema() -> dict[str, Any]:
    """Give the JSON Schema of the manifest."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:libra-plan:v1alpha1:placement-manifest",
        "title": "PlacementManifest",
        **msgspec.json.schema(Manifest),
    }


def main() -> None:
    """Write the schema beside this module."""
    SCHEMA_FILE.write_text(json.dumps(manifest_schema(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

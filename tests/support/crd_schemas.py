"""Make strict JSON Schemas of Kubernetes CRDs: `python tests/support/crd_schemas.py CRD.yaml ...`.

What the API server would drop (an unknown field) is refused here. Descriptions and the rules in
CEL, which JSON Schema cannot say, are left out; so is `metadata`, which a CRD does not describe.
The files are written to tests/data/crds/, compressed, with nothing that changes from run to run.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[1] / "data" / "crds"
KEPT = {
    "type",
    "enum",
    "pattern",
    "format",
    "required",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "uniqueItems",
    "nullable",
}


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Turn one structural schema into a strict JSON Schema."""
    made: dict[str, Any] = {key: schema[key] for key in sorted(KEPT & schema.keys())}
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if "items" in schema:
        made["items"] = strict(schema["items"])
    if "properties" in schema:
        made["properties"] = {name: strict(one) for name, one in sorted(schema["properties"].items())}
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        made["additionalProperties"] = strict(extra)
    elif "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    return made


def schemas(crd: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the schema of each served version, by `apiVersion/kind`."""
    spec = crd["spec"]
    found = {}
    for version in spec["versions"]:
        if not version["served"]:
            continue
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        schema["properties"].pop("status", None)
        found[f"{spec['group']}/{version['name']}/{spec['names']['kind']}"] = schema
    return found


def write(path: Path) -> None:
    """Write the schemas of one CRD file."""
    crd = yaml.safe_load(path.read_text("utf-8"))
    text = json.dumps(schemas(crd), sort_keys=True, separators=(",", ":"))
    name = f"{crd['metadata']['name'].split('.')[0]}.json.gz"
    (FOLDER / name).write_bytes(gzip.compress(text.encode(), mtime=0))


def load() -> dict[str, dict[str, Any]]:
    """Read all schemas of tests/data/crds."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(FOLDER.glob("*.json.gz")):
        found |= json.loads(gzip.decompress(path.read_bytes()))
    return found


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        write(Path(argument))

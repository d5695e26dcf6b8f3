"""Results as JSON or YAML."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["as_data", "data_text"]


def data_text(value: Any, form: str) -> str:
    """Return a result as text, `form` being `json` or `yaml`; a manifest as it is written to a file."""
    if type(value).__name__ == "Manifest":
        from libra_plan.planner.launchers.document import manifest_to_json, manifest_to_yaml

        return (manifest_to_json(value) if form == "json" else manifest_to_yaml(value)).rstrip("\n")
    if form == "yaml":
        import yaml

        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110).rstrip("\n")
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)


def as_data(value: Any) -> Any:
    """Turn frozen results into plain data for JSON and YAML."""
    import msgspec

    return msgspec.to_builtins(value, str_keys=True)

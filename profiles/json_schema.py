"""Write the JSON Schemas of users' files: `python -m libra_plan.profiles.json_schema [FOLDER]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from libra_plan.profiles.descriptions import DESCRIPTIONS
from libra_plan.profiles.schema import ClusterFile, ProfileFile, SwitchingFile, WorkloadFile

__all__ = ["FILES", "schema_files"]

FILES: dict[str, type[msgspec.Struct]] = {
    "cluster": ClusterFile,
    "profile": ProfileFile,
    "switching": SwitchingFile,
    "workload": WorkloadFile,
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_files() -> dict[str, str]:
    """Make the text of each `<name>.schema.json`, dialect 2020-12, unknown keys refused, keys described."""
    return {f"{name}.schema.json": _schema(name, shape) for name, shape in FILES.items()}


def _schema(name: str, shape: type[msgspec.Struct]) -> str:
    schema = msgspec.json.schema(shape)
    for struct, part in schema["$defs"].items():
        for key, expected in part["properties"].items():
            expected["description"] = DESCRIPTIONS[struct][key]
    head = {"$schema": _DIALECT, "$id": f"urn:libra-plan:schema:{name}:1", "title": f"libra-plan {name} file"}
    return json.dumps({**head, **schema}, indent=2, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the schemas from the command line."""
    parser = argparse.ArgumentParser(description="Write the JSON Schemas of libra-plan's files.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).resolve().parent / "schemas")
    folder = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in schema_files().items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()

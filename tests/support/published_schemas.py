"""Make the JSON Schemas of users' files that editors check against, from the schema's own comments.

    python tests/support/published_schemas.py

writes `profiles/schemas/` again. The description of a key is its comment `#:` in `profiles/schema.py`
or `profiles/schema_workload.py`, on its own line or above it.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from libra_plan.profiles import schema, schema_workload

FILES: dict[str, type[msgspec.Struct]] = {
    "cluster": schema.ClusterFile,
    "profile": schema.ProfileFile,
    "switching": schema.SwitchingFile,
    "workload": schema.WorkloadFile,
}
FOLDER = Path(schema.__file__).parent / "schemas"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@functools.cache
def descriptions() -> dict[str, dict[str, str]]:
    """Describe every key by struct: its comment, or the struct's docstring for the key that names it."""
    return {name: keys for module in (schema, schema_workload) for name, keys in _of_module(module)}


def _of_module(module: ModuleType) -> list[tuple[str, dict[str, str]]]:
    source = inspect.getsource(module)
    lines = source.splitlines()
    found = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        struct = getattr(module, node.name)
        keys = {}
        tag = struct.__struct_config__.tag_field
        if tag is not None:
            keys[tag] = str(struct.__doc__).splitlines()[0]
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                keys[field.target.id] = _comment(lines, field.lineno - 1, (field.end_lineno or 0) - 1)
        found.append((node.name, keys))
    return found


def _comment(lines: list[str], first: int, last: int) -> str:
    behind = lines[last].partition("  #: ")[2]
    if behind:
        return behind
    above: list[str] = []
    while (found := re.match(r"\s*#: (.*)", lines[first - 1])) is not None:
        above.insert(0, found[1])
        first -= 1
    return " ".join(above)


def schema_files() -> dict[str, str]:
    """Make the text of each `<name>.schema.json`, dialect 2020-12, unknown keys refused, keys described."""
    return {f"{name}.schema.json": _schema(name, shape) for name, shape in FILES.items()}


def _schema(name: str, shape: type[msgspec.Struct]) -> str:
    made: dict[str, Any] = msgspec.json.schema(shape)
    for struct, part in made["$defs"].items():
        for key, expected in part["properties"].items():
            expected["description"] = descriptions()[struct][key]
    head = {"$schema": _DIALECT, "$id": f"urn:libra-plan:schema:{name}:1", "title": f"libra-plan {name} file"}
    return json.dumps({**head, **made}, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for file, text in schema_files().items():
        (FOLDER / file).write_text(text, encoding="utf-8", newline="\n")

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from profile_files import profile_data, workload_data
from published_schemas import FILES, descriptions, schema_files

from libra_plan.profiles.catalog import shipped_folder

EXAMPLES = Path(__file__).parents[2] / "examples"


def validator(name: str) -> Draft202012Validator:
    schema = json.loads(schema_files()[f"{name}.schema.json"])
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_published_schemas_are_up_to_date() -> None:
    """Editors check against the published files; `python tests/support/published_schemas.py` renews them."""
    published = shipped_folder() / "schemas"
    assert {path.name for path in published.iterdir()} == set(schema_files())
    for name, text in schema_files().items():
        assert (published / name).read_text(encoding="utf-8") == text, name


@pytest.mark.parametrize("name", FILES)
def test_every_mapping_of_ours_refuses_unknown_keys(name: str) -> None:
    """A schema that lets a mistyped key pass would contradict the reader."""
    schema = json.loads(schema_files()[f"{name}.schema.json"])
    assert schema["$id"] == f"urn:libra-plan:schema:{name}:1"
    objects = [part for part in schema["$defs"].values() if part["type"] == "object"]
    assert objects
    assert all(part["additionalProperties"] is False for part in objects)


def test_shipped_files_are_valid() -> None:
    """Schema and reader must agree on what is right."""
    checked = 0
    for name in ("profile", "switching"):
        for path in shipped_folder().glob(f"*/{name}.yaml"):
            validator(name).validate(read(path))
            checked += 1
    validator("workload").validate(read(shipped_folder() / "workload.yaml"))
    assert checked == 11 + 12 + 3 + 7 + 1  # h200-, h200b-, h200c- and aic- profiles, switching costs


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="run against an installed package")
def test_the_example_cluster_is_valid() -> None:
    """The example names the schema in its first line."""
    validator("cluster").validate(read(EXAMPLES / "cluster.yaml"))


def test_what_the_reader_refuses_the_schema_refuses() -> None:
    """Unknown keys, wrong types and zero counts are caught in the editor already."""
    wrong: list[tuple[str, Any]] = [
        ("profile", {**profile_data(), "extra": 1}),
        ("profile", {**profile_data(), "schema_version": 2}),
        ("profile", {**profile_data(), "id": "two words"}),
        ("workload", {**workload_data(), "horizon_s": "3600"}),
        ("workload", {**workload_data(), "horizon_s": 0}),
    ]
    validator("profile").validate(profile_data())
    validator("workload").validate(workload_data())
    for name, data in wrong:
        assert not validator(name).is_valid(data), data


def test_every_key_is_described() -> None:
    """What an editor shows beside a key must be there."""
    for text in schema_files().values():
        for name, part in json.loads(text)["$defs"].items():
            assert all(len(each["description"]) > 5 for each in part["properties"].values()), name


@pytest.mark.parametrize(
    ("struct", "key", "said"),
    [
        ("CouplingSpec", "staleness_steps", "1 or more for async"),
        ("CouplingSpec", "groups", "required for pipelined"),
        ("NodeSpec", "gpu_count", "either this or `gpus`"),
        ("RoleSpec", "workers", "env"),
        ("RoleSpec", "verdict_tokens", "required when"),
        ("RoleSpec", "mixed_layouts", "not with `pinned_gpus`"),
        ("TaskSpec", "team", "`quotas`"),
        ("TaskSpec", "waited_s", "`aging_s`"),
        ("Histogram", "edges_tokens", "one more than `counts`"),
    ],
)
def test_what_only_the_reader_checks_is_said(struct: str, key: str, said: str) -> None:
    """A file that the schema passes and the reader refuses must be no surprise."""
    assert said in descriptions()[struct][key]

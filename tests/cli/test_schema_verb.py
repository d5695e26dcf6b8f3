"""`schema`: what editors need, from the installed package."""

from __future__ import annotations

import json
import re

import jsonschema
import msgspec
import pytest
from published_schemas import FILES, schema_files

from libra_plan.cli.schema_verb import SchemaName
from libra_plan.planner.controller.hysteresis import ReplanPolicy
from libra_plan.profiles.catalog import shipped_folder


@pytest.mark.parametrize("name", FILES)
def test_a_schema_is_printed_as_published(call, name):
    """Whoever copies a workload has no checkout to point its first line to."""
    ran = call("schema", name)
    assert ran.code == 0
    assert ran.out == schema_files()[f"{name}.schema.json"]


def test_the_manifest_has_one_too(call):
    """Programs that read plans check them."""
    assert json.loads(call("schema", "manifest").out)["$schema"].startswith("https://json-schema.org/")
    assert {each.value for each in SchemaName} == {*FILES, "manifest", "replan-policy"}


def test_the_policy_of_the_loop_has_one_with_its_defaults(call):
    """An editor shows what holds where the file says nothing, and marks a slip of the pen."""
    schema = json.loads(call("schema", "replan-policy").out)
    check = jsonschema.Draft202012Validator(schema)
    assert check.is_valid({})
    assert check.is_valid(msgspec.to_builtins(ReplanPolicy()))
    assert not check.is_valid({"rule": {"gain_upp": 0.1}})
    assert not check.is_valid({"caps": {"moved_gpus_share": 1.5}})


def test_the_shipped_workload_says_how_to_get_its_schema(call):
    """Its first line must be true wherever it is copied: the file is written by the command beside it."""
    head = (shipped_folder() / "workload.yaml").read_text(encoding="utf-8").splitlines()[:3]
    file = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", head[0])[1]
    command, target = re.search(r"libra-plan (.*) > (\S+)\)", "".join(head)).groups()
    assert target == file
    assert call(*command.split()).code == 0

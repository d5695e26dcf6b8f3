"""Schemas are for editors: each is JSON, and names what it describes."""

from __future__ import annotations

import json

import jsonschema
import pytest

import libra_plan as lp
from libra_plan.errors import InputError
from libra_plan.planner.schemas import _KNOWN


@pytest.mark.parametrize("name", _KNOWN)
def test_every_schema_is_one(name):
    """An editor silently ignores a schema that it cannot read."""
    schema = json.loads(lp.schema(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"].startswith("https://json-schema.org/")


def test_a_schema_that_is_not_there_is_refused_with_those_that_are():
    """The list is the documentation."""
    with pytest.raises(InputError, match="workload, cluster"):
        lp.schema("tasks")

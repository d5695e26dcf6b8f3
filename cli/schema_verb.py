"""`schema`: print the published JSON Schema of a file, for editors."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

import libra_plan as lp
from libra_plan.cli import render
from libra_plan.cli.program import app

_SCHEMA = (
    "Print the JSON Schema of a kind of file; with it editors complete keys and mark mistakes.\n\n"
    "Example: libra-plan schema workload > workload.schema.json"
)


class SchemaName(str, Enum):
    """The kinds of files that have a schema."""

    WORKLOAD = "workload"
    CLUSTER = "cluster"
    PROFILE = "profile"
    SWITCHING = "switching"
    MANIFEST = "manifest"
    REPLAN_POLICY = "replan-policy"


@app.command("schema", help=_SCHEMA)
def _schema(name: Annotated[SchemaName, typer.Argument(metavar="NAME", help="Kind of file.")]) -> None:
    render.print_text(lp.schema(name.value))

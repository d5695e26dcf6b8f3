"""`schema`: print the published JSON Schema of a file, for editors."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from libra_plan.cli import render

__all__ = ["register"]

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


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(help=_SCHEMA)(schema)


def schema(name: Annotated[SchemaName, typer.Argument(metavar="NAME", help="Kind of file.")]) -> None:
    """Print a schema as it is published."""
    from importlib import resources

    if name is SchemaName.REPLAN_POLICY:
        from libra_plan.planner.controller.policy import policy_schema

        render.print_text(policy_schema())
        return
    if name is SchemaName.MANIFEST:
        from libra_plan.planner.launchers.manifest import manifest_schema

        render.print_data(manifest_schema(), "json")
        return
    file = resources.files("libra_plan.profiles") / "schemas" / f"{name.value}.schema.json"
    render.print_text(file.read_text(encoding="utf-8").rstrip("\n"))

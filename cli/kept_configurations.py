"""Columns of tasks kept in the cache folder, from one run to the next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render

if TYPE_CHECKING:
    from libra_plan.planner.configurations.keeping import ConfigurationFolder

__all__ = ["MOST_MIB", "ColumnsMib", "kept_configurations"]

MOST_MIB = 256.0

ColumnsMib = Annotated[
    float,
    typer.Option(
        "--columns-mib",
        help="MiB of columns to keep in the cache folder, for tasks that stay as they are; 0: none.",
        min=0.0,
    ),
]


@contextmanager
def kept_configurations(most_mib: float) -> Iterator[ConfigurationFolder | None]:
    """Open what is kept beside the fits; afterwards tell of what was damaged, and delete what is too much."""
    if not most_mib:
        yield None
        return
    from libra_plan.models.fits import cache_folder
    from libra_plan.planner.configurations.keeping import ConfigurationFolder

    folder = ConfigurationFolder(cache_folder(os.environ) / "columns", most_mib)
    yield folder
    for note in folder.notes:
        render.note(note)
    if folder.made:
        folder.trim()

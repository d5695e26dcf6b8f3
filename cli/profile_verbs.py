"""`profile fit`: what the cost models make of measured points."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.plan_verbs import Form

if TYPE_CHECKING:
    from libra_plan.models.crossval import Errors

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Measure, import, fit and check profiles."
)


@app.command(
    help="Fit every profile of a folder, and print the errors on points left out by group.\n\n"
    "Example: libra-plan profile fit profiles/"
)
def fit(
    profiles: Annotated[Path, typer.Argument(help="Profiles folder.")],
    form: Annotated[Form, typer.Option("--format", help="How to write the result.")] = Form.TABLE,
) -> None:
    """Fit, keep the fits in the cache, print their errors."""
    from libra_plan.models.crossval import cross_validate
    from libra_plan.models.fit_cache import cache_folder, cached_fit
    from libra_plan.profiles.catalog import find_folder, load_folder

    folder = load_folder(find_folder(profiles))
    cache = cache_folder(os.environ)
    results = {
        name: cross_validate(cached_fit(profile.file, profile.points, folder=cache))
        for name, profile in sorted(folder.profiles.items())
    }
    if form is not Form.TABLE:
        render.print_data(render.as_data(results), form.value)
        return
    rows = [
        [name, str(each.layout), *_errors(each.time), *_errors(each.memory)]
        for name, layouts in results.items()
        for each in layouts
    ]
    render.print_table(
        ["profile", "layout", "time median", "p90", "covered", "memory median", "p90", "covered"],
        rows,
        right=range(2, 8),
    )


def _errors(errors: Errors | None) -> list[str]:
    if errors is None:
        return ["?", "?", "?"]
    return [f"{errors.median:.2%}", f"{errors.p90:.2%}", f"{errors.covered:.0%}"]

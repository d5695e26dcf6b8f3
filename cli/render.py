"""The only module that prints: results go to stdout, everything else to stderr."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import typer

import libra_plan as lp
from libra_plan.errors import InputError
from libra_plan.planner.report.data_text import as_data, data_text
from libra_plan.planner.report.text_table import Page, table_text

__all__ = ["as_data", "note", "page", "print_data", "print_line", "print_plan", "print_table", "print_text"]


def print_text(text: str) -> None:
    """Write a result."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise InputError(
            "the result cannot be written",
            got=problem.strerror,
            way_out="free some space, or write elsewhere",
        ) from None


def print_line(text: str) -> None:
    """Write a line of a result that goes on, at once even where stdout is a pipe."""
    print_text(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """Write what is no result: progress, warnings, what was written where."""
    with suppress(OSError):  # stderr is gone as well: there is no way to report that
        typer.echo(text, err=True)


def print_data(data: Any, form: str) -> None:
    """Write a result as JSON or YAML."""
    print_text(data_text(data, form))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Write a table; `right` numbers the columns that are aligned to the right."""
    print_text(table_text(columns, rows, right, page()))


def page() -> Page:
    """Return the page that stdout is: the terminal's width, or no limit where stdout is piped."""
    if not sys.stdout.isatty():
        return Page()
    bold = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Page(shutil.get_terminal_size().columns, bold)


def print_plan(plan: lp.Plan) -> None:
    """Write what `plan.summary()` returns, as wide as the terminal."""
    from libra_plan.planner.report.plan_text import plan_text  # with plans only: it loads the planner

    print_text(plan_text(plan.known_problem, plan, page()))

"""Turn an error into one line and an exit code."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from libra_plan.errors import LibraError, writing

__all__ = ["Interrupted", "UsageFault", "line_of", "printable", "writing"]

# Typer uses Click, or brings a Click of its own: the class is found through one that Typer exports.
UsageFault: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


class Interrupted(BaseException):
    """The user wants to leave now, without an answer; the text says what came of it."""


def printable(path: Path) -> str:
    """Return a path as text that any output can take, whatever bytes it holds."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def line_of(error: Exception, settings: str | None = None, arguments: Sequence[str] = ()) -> str:
    """Return one line that says what is wrong, and one more for each cause when a launcher has several.

    `settings` names the file that gave defaults.
    """
    causes: tuple[str, ...] = getattr(error, "causes", ())
    if isinstance(error, LibraError) and len(causes) > 1:
        head = "; ".join(filter(None, (f"{error.what}, for {len(causes)} reasons", error.way_out)))
        return "\n  ".join(" ".join(line.split()) for line in (head, *causes))
    text = error.message if isinstance(error, LibraError) else _usage(error, settings, arguments)
    return " ".join(text.split())


def _usage(error: Any, settings: str | None, arguments: Sequence[str]) -> str:
    said = str(error.format_message()).rstrip(".")
    parts = [said + _source(error, settings)]
    got = _given(error, arguments)
    if got is not None and got not in said:
        parts.append(f"got {got}")
    context = getattr(error, "ctx", None)
    if "did you mean" not in said.lower():
        near = _nearest(error, context)
        if near:
            parts.append(f"did you mean `{near}`?")
    if context is not None:
        parts.append(f"see `{context.command_path} --help`")
    return "; ".join(parts)


def _source(error: Any, settings: str | None) -> str:
    """Return where a wrong value came from when it was not a flag."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or parameter is None or parameter.name is None:
        return ""
    source = context.get_parameter_source(parameter.name)
    if source is None:
        return ""
    if source.name == "ENVIRONMENT":
        return f" (from the environment: {parameter.envvar})"
    return f" (from {settings})" if source.name == "DEFAULT_MAP" and settings else ""


def _given(error: Any, arguments: Sequence[str]) -> str | None:
    """Return what the user wrote for the option that is wrong."""
    for name in getattr(getattr(error, "param", None), "opts", ()):
        for at, argument in enumerate(arguments):
            if argument == name and at + 1 < len(arguments):
                return arguments[at + 1]
            if argument.startswith(f"{name}="):
                return argument[len(name) + 1 :]
    return None


def _nearest(error: Any, context: Any) -> str | None:
    """Return the verb or option that was probably meant."""
    if context is None:
        return None
    wrong = getattr(error, "option_name", None)
    if wrong is not None:
        known = [name for parameter in context.command.params for name in parameter.opts]
    elif "No such command" in str(error) and hasattr(context.command, "list_commands"):
        wrong = str(error).split("'")[1]
        known = list(context.command.list_commands(context))
    else:
        return None
    return next(iter(difflib.get_close_matches(wrong, known, n=1)), None)

"""Write shell scripts and other texts in which external values are quoted, so that they stay data."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping

import yaml

__all__ = [
    "HERE_LINE",
    "bracketed",
    "comments",
    "exports",
    "hydra_text",
    "script",
    "to_toml",
    "to_yaml",
    "words",
]

HERE_LINE = 'here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)'  # the folder of the script
_WIDTH = 100
_SURELY_TEXT = re.compile(r"(?!(?:yes|no|on|off|true|false|null|nan|inf|infinity)$)[a-z/][a-z0-9_./-]+", re.I)


class _Dumper(yaml.SafeDumper):
    """Quote what a reader of another YAML version could take for a number or a truth (1e3, y)."""

    def ignore_aliases(self, data: object) -> bool:
        """Write equal values out each time; anchors are hard to read."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _SURELY_TEXT.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def words(argv: Iterable[str]) -> str:
    """Quote an argument list for a POSIX shell."""
    return " ".join(shlex.quote(word) for word in argv)


def bracketed(address: str) -> str:
    """Write an address so that a port can follow it: IPv6 in brackets."""
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


def comments(lines: Iterable[str]) -> list[str]:
    """Make comment lines; no line break in a text ends the comment."""
    return [f"# {' '.join(line.split())}" for line in lines]


def exports(environment: Mapping[str, str]) -> list[str]:
    """Set and export variables."""
    return [f"export {key}={shlex.quote(value)}" for key, value in environment.items()]


def script(notes: Iterable[str], body: Iterable[str]) -> str:
    """Write a script for `sh` that ends at the first error."""
    return "\n".join(["#!/bin/sh", *comments(notes), "set -eu", *body]) + "\n"


def hydra_text(text: str) -> str:
    """Quote a text as the value of a Hydra override, so that it is neither cut nor interpolated.

    Backslashes count only before a quote, the end, or `${`, where each stands for itself if doubled.
    """
    text = re.sub(r"(\\*)\$\{", lambda found: 2 * found[1] + "\\${", text)
    text = re.sub(r"(\\*)'", lambda found: 2 * found[1] + "\\'", text)
    return "'" + re.sub(r"(\\+)\Z", lambda found: 2 * found[1], text) + "'"


def to_yaml(notes: Iterable[str], *documents: object) -> str:
    """Write YAML documents under comments; keys keep their order."""
    head = "".join(f"{line}\n" for line in comments(notes))
    return head + yaml.dump_all(
        documents,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=_WIDTH,
        explicit_start=len(documents) > 1,
    )


def to_toml(notes: Iterable[str], tables: Mapping[str, Mapping[str, str | int | bool]]) -> str:
    """Write TOML tables under comments."""
    lines = comments(notes)
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml(value: str | int | bool) -> str:
    """Write a value as JSON, which is TOML too, except that DEL and surrogates may not be so escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

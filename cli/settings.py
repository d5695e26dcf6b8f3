"""Defaults for options from outside: the settings file and the environment.

A flag wins over the environment, the environment over the file. In both, an option has the name
of its flag: `--time-limit` of `solve` is `solve: {time-limit: 5}` and LIBRA_PLAN_SOLVE_TIME_LIMIT.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libra_plan.errors import InputError, Where

if TYPE_CHECKING:
    from libra_plan.profiles.document import Document

__all__ = ["SETTINGS", "default_map", "name_variables", "unknown_variables"]

SETTINGS = "libra-plan.yaml"
_ONLY_AS_FLAGS = frozenset({"help", "yes", "version"})
"""What must be asked for each time: `launch --yes` starts processes."""


_FOLDERS = ("LIBRA_PLAN_CACHE", "LIBRA_PLAN_PROFILES")
_OF_ROLES = frozenset(
    "LIBRA_PLAN_" + name
    for name in (
        *("TASK", "ROLE", "NODE", "GENERATION", "MANIFEST_DIGEST", "CHECKPOINT_DIR", "SHARE_GROUP", "TP"),
        *("PP", "CP", "EP", "DP", "MEMORY_MODE", "MIX", "GPU_UUIDS", "WORKERS", "FOLDER", "LAUNCH_ID"),
    )
)
"""What launchers tell roles; the program may well be run inside one."""


def default_map(config: str | None, program: Any) -> tuple[dict[str, object], str | None]:
    """Read the settings file, checked against the verbs of `program`; give it with the file's name.

    Without `config`, the file in the working folder is read if there is one.
    """
    path = Path(config or SETTINGS)
    if config is None and not path.is_file():
        return {}, None
    from libra_plan.profiles.document import parse_document, read_text  # only when there is a file

    text, sha256 = read_text(path)
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        return {}, str(path)
    document = parse_document(text, str(path), sha256=sha256)
    return _verbs(document.data, program, document, ""), document.path


def name_variables(command: Any, prefix: str) -> None:
    """Name an environment variable after the flag of every option of a command and its verbs."""
    for parameter in command.params:
        if parameter.param_type_name == "option" and not _only_as_flag(parameter):
            parameter.envvar = f"{prefix}_{_flag(parameter)}".replace("-", "_").upper()
            parameter.show_envvar = False  # one sentence of the help tells them all
    for name, verb in getattr(command, "commands", {}).items():
        name_variables(verb, f"{prefix}_{name}")


def unknown_variables(names: Iterable[str], program: Any, prefix: str) -> list[str]:
    """List the environment variables that look like ours but are not read; most likely they are misspelt."""
    options = dict(_variables(program, prefix))
    known = {*_FOLDERS, *_OF_ROLES, *(name for name, read in options.items() if read)}
    said = []
    for name in sorted(set(names) - known):
        if options.get(name) is False:
            said.append(f"{name} is not read: the option can only be given on the command line")
        elif name.startswith(f"{prefix}_"):
            near = difflib.get_close_matches(name, [*_FOLDERS, *options], n=1)
            said.append(f"{name} is not read" + (f"; did you mean {near[0]}?" if near else ""))
    return said


def _variables(command: Any, prefix: str) -> Iterator[tuple[str, bool]]:
    """Yield the variable of every option, and whether it is read."""
    for parameter in command.params:
        if parameter.param_type_name == "option":
            name = f"{prefix}_{_flag(parameter)}".replace("-", "_").upper()
            yield name, not _only_as_flag(parameter)
    for name, verb in getattr(command, "commands", {}).items():
        yield from _variables(verb, f"{prefix}_{name}")


def _flag(parameter: Any) -> str:
    return str(max(parameter.opts, key=len).lstrip("-"))


def _only_as_flag(parameter: Any) -> bool:
    return bool(parameter.is_eager) or _flag(parameter) in _ONLY_AS_FLAGS


def _verbs(data: object, group: Any, document: Document, above: str) -> dict[str, object]:
    if not isinstance(data, dict):
        raise InputError(
            "settings map verbs to their options",
            got=type(data).__name__,
            allowed="solve: {policy: max-min}",
            where=document.where(above),
        )
    result: dict[str, object] = {}
    for name, options in data.items():
        key = f"{above}.{name}".lstrip(".")
        verb = group.commands.get(name)
        if verb is None:
            raise _unknown("verb", name, group.commands, document.where(key))
        if hasattr(verb, "commands"):
            result[name] = _verbs(options, verb, document, key)
        else:
            result[name] = _options(options, verb, document, key)
    return result


def _options(data: object, verb: Any, document: Document, above: str) -> dict[str, object]:
    if not isinstance(data, dict):
        raise InputError(
            "settings of a verb map its options to values",
            got=type(data).__name__,
            allowed=f"{above}: {{option: value}}",
            where=document.where(above),
        )
    known = {_flag(each): each for each in verb.params if each.param_type_name == "option"}
    allowed = sorted(name for name, each in known.items() if not _only_as_flag(each))
    result: dict[str, object] = {}
    for name, value in data.items():
        where = document.where(f"{above}.{name}")
        flag = str(name).replace("_", "-")
        if flag in known and _only_as_flag(known[flag]):
            raise InputError(
                "this option can only be given on the command line",
                got=name,
                allowed=f"--{flag}",
                where=where,
            )
        if flag not in known:
            raise _unknown("option", flag, allowed, where)
        parameter = known[flag]
        if not isinstance(value, (str, int, float)) and not (parameter.multiple and isinstance(value, list)):
            raise InputError(
                "not a value for an option",
                got="nothing" if value is None else value,
                allowed="one value",
                where=where,
            )
        result[parameter.name] = value
    return result


def _unknown(what: str, name: str, known: Iterable[str], where: Where) -> InputError:
    listed = sorted(known)
    near = difflib.get_close_matches(str(name), listed, n=1)
    return InputError(
        f"unknown {what} in the settings",
        got=name,
        allowed=", ".join(listed),
        way_out=f"did you mean `{near[0]}`?" if near else "leave it out",
        where=where,
    )

"""Read a YAML or JSON file into typed structs; every message names file, line and key.

YAML is composed by PyYAML (in C where it can) and its words are resolved as YAML 1.2 says
(`scalars.py`); JSON is read by the standard library. Both refuse duplicate keys, NaN, and files that
would fill memory. Lines are looked up only when a message needs them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
import yaml

from libra_plan.errors import InputError, ProfileError, Where
from libra_plan.profiles import scalars, wording

__all__ = ["Document", "decode", "parse_document", "read_document", "read_text", "shown"]

MAX_FILE_BYTES = 4 * 2**20
MAX_DEPTH = 40
MAX_VALUES = 200_000  # aliases count at their full size, so that alias bombs stop here

_TAG = "tag:yaml.org,2002:"
_PLAIN = "!plain"
_NOT_YAML = "not valid YAML"

StructT = TypeVar("StructT", bound=msgspec.Struct)


@dataclass(frozen=True)
class Document:
    """The plain data of one file, its name, the SHA-256 of its bytes, and its text."""

    data: object
    path: str
    sha256: str = ""
    text: str = ""

    @functools.cached_property
    def lines(self) -> dict[str, int]:
        """The line of every dotted key and list item."""
        try:
            root = yaml.compose(self.text, Loader=_LOADER)
        except yaml.YAMLError:  # JSON with escapes that YAML does not have
            return {}
        return {} if root is None else {path: line for path, line, _ in _places(root)}

    def where(self, key: str) -> Where:
        """Return the place of a key, or of the nearest one above it that the file has."""
        nearest = key
        while nearest and nearest not in self.lines:
            nearest = re.sub(r"(\.|^)[^.\[\]]*$|\[[^\]]*\]$", "", nearest)
        return Where(self.path, self.lines.get(nearest), key or None)


def shown(path: str | Path) -> str:
    """Return a path as text that any terminal can print, whatever bytes it holds."""
    return os.fsencode(path).decode("utf-8", "replace")


def read_text(
    path: str | Path, error: type[InputError] = InputError, limit: int = MAX_FILE_BYTES
) -> tuple[str, str]:
    """Read a UTF-8 file; return its text and the SHA-256 of its bytes.

    At most `limit` bytes are read, so that a wrong path (a log, a device) does not fill memory.
    """
    where = Where(shown(path))
    try:
        with Path(path).open("rb") as file:
            content = file.read(limit + 1)
    except FileNotFoundError:
        raise error("no such file", way_out="check the path", where=where) from None
    except IsADirectoryError:
        raise error("this is a folder, not a file", where=where) from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error("the file cannot be read", got=reason, where=where) from None
    if len(content) > limit:
        raise error("the file is too large", allowed=f"{limit} bytes", where=where)
    if b"\0" in content:
        raise error(
            "the file holds NUL bytes",
            way_out="it may have been cut short by a crash: restore it from a copy",
            where=Where(where.file, content[: content.index(b"\0")].count(b"\n") + 1),
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(
            "the file is not UTF-8",
            got=f"byte 0x{content[problem.start]:02x}",
            way_out="save it as UTF-8",
            where=Where(where.file, content[: problem.start].count(b"\n") + 1),
        ) from None
    return text, hashlib.sha256(content).hexdigest()


def read_document(path: str | Path, error: type[InputError] = InputError) -> Document:
    """Read a file: JSON when its name ends in `.json`, else YAML 1.2."""
    text, sha256 = read_text(path, error)
    return parse_document(text, shown(path), error, sha256=sha256)


def parse_document(
    text: str, name: str, error: type[InputError] = InputError, *, sha256: str | None = None
) -> Document:
    """Parse text as the file `name` would be."""
    data = _json(text, name, error) if name.endswith(".json") else _yaml(text, name, error)
    if data is None:
        raise error("empty file", allowed="keys and values", where=Where(name))
    return Document(data, name, sha256 or hashlib.sha256(text.encode()).hexdigest(), text)


def decode(document: Document, shape: type[StructT], error: type[InputError] = ProfileError) -> StructT:
    """Convert a document to a struct; an error says what does not fit, where, and what would."""
    try:
        return msgspec.convert(document.data, shape, strict=True)
    except msgspec.ValidationError as problem:
        complaint = wording.complaint(str(problem), document.data, shape)
        raise complaint.error(error, document.where(complaint.key)) from None


# ---------------------------------------------------------------- YAML


def _marking_plain(loader: Any) -> Any:
    """Derive a loader that resolves no words, but tags those without quotes."""
    derived: Any = type("Loader", (loader,), {})
    derived.add_implicit_resolver(_PLAIN, re.compile(""), None)
    return derived


_LOADER = _marking_plain(getattr(yaml, "CBaseLoader", yaml.BaseLoader))


def _yaml(text: str, file: str, error: type[InputError]) -> object:
    try:
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        reason = " ".join(part for part in (problem.context, problem.problem) if part)
        line = None if mark is None else mark.line + 1
        raise error(_NOT_YAML, got=reason, where=Where(file, line)) from None
    except yaml.YAMLError as problem:
        raise error(_NOT_YAML, got=str(problem).splitlines()[0], where=Where(file)) from None
    except RecursionError:
        raise error("the file is nested too deeply", where=Where(file)) from None
    return None if root is None else _Composed(root, file, error).value(root)


def _places(node: yaml.Node, path: str = "") -> Iterator[tuple[str, int, yaml.Node]]:
    """Yield path, line and node of every key and list item under a node, in file order."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = f"{path}.{key.value}" if path else str(key.value)
            yield here, key.start_mark.line + 1, value
            yield from _places(value, here)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield f"{path}[{index}]", value.start_mark.line + 1, value
            yield from _places(value, f"{path}[{index}]")


class _Composed:
    """The nodes of one file, turned into plain data within the limits."""

    def __init__(self, root: yaml.Node, file: str, error: type[InputError]) -> None:
        self.root, self.file, self.error = root, file, error
        self.left = MAX_VALUES

    def refuse(
        self, node: yaml.Node, what: str, *, inside: yaml.Node | None = None, **parts: str
    ) -> NoReturn:
        """Raise the error for a node; its key is that of the value `inside` which it stands."""
        wanted = inside or node
        path = next((path for path, _, each in _places(self.root) if each is wanted), None)
        raise self.error(what, **parts, where=Where(self.file, node.start_mark.line + 1, path))

    def value(self, node: yaml.Node, depth: int = 1) -> object:
        """Return the data of a node."""
        self.left -= 1
        if self.left < 0:
            line = node.start_mark.line + 1
            raise self.error(
                "the file holds too many values", allowed=MAX_VALUES, where=Where(self.file, line)
            )
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if node.tag not in (f"{_TAG}seq", f"{_TAG}map", "!"):
            self.refuse(node, "a tag that is not read here", got=node.tag)
        if depth > MAX_DEPTH:
            self.refuse(node, "the file is nested too deeply", allowed=f"{MAX_DEPTH} levels")
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, depth + 1) for item in node.value]
        result: dict[str, object] = {}
        for key, value in node.value:
            name = self.key(key, node)
            if name in result:
                line = key.start_mark.line + 1
                first = next(other for other, _ in node.value if other.value == name)
                got = f"it on line {first.start_mark.line + 1} and again on line {line}"
                what = f"duplicate key `{name}`"
                self.refuse(key, what, inside=node, got=got, way_out="keep one of them")
            result[name] = self.value(value, depth + 1)
        return result

    def key(self, key: yaml.Node, mapping: yaml.Node) -> str:
        """Return the name of a key."""
        if not isinstance(key, yaml.ScalarNode):
            self.refuse(key, "a key must be plain text", inside=mapping, way_out="write `key: value`")
        name = self.scalar(key)
        if not isinstance(name, str):
            way_out = f'quote it: "{name}"'
            self.refuse(key, "a key must be text", inside=mapping, got=repr(name), way_out=way_out)
        return name

    def scalar(self, node: yaml.ScalarNode) -> scalars.Scalar:
        """Return the text, number, truth or nothing that a word means."""
        text = str(node.value)
        if "\0" in text:
            self.refuse(node, "a text holds a NUL character, which no path or command can")
        if node.tag in ("!", f"{_TAG}str"):
            return text
        if node.tag not in (_PLAIN, *(f"{_TAG}{kind}" for kind in ("int", "float", "bool", "null"))):
            self.refuse(node, "a tag that is not read here", got=str(node.tag))
        try:
            return scalars.plain(text)
        except scalars.NotFiniteError:
            way_out = "leave the key out when the value is unknown"
            self.refuse(node, "not a finite number", got=text, way_out=way_out)
        except scalars.TooLargeError as problem:
            self.refuse(node, "the number is too large", got=str(problem))


# ---------------------------------------------------------------- JSON


class _Refused(ValueError):
    """JSON that is well formed and refused all the same."""


def _json(text: str, file: str, error: type[InputError]) -> object:
    if not text.strip():
        return None
    try:
        data = json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_not_finite,
        )
        _check_size(data)
    except json.JSONDecodeError as problem:
        near = repr(text[problem.pos : problem.pos + 20]) if problem.pos < len(text) else "the end"
        raise error(f"not valid JSON: {problem.msg}", got=near, where=Where(file, problem.lineno)) from None
    except RecursionError:
        raise error("the file is nested too deeply", where=Where(file)) from None
    except _Refused as reason:
        try:
            _yaml(text, file, error)  # finds the same fault, and its line and key
        except InputError as located:
            if located.what != _NOT_YAML:
                raise located from None
        raise error(str(reason), where=Where(file)) from None
    return data


def _number(text: str) -> int | float:
    try:
        return scalars.number(text)
    except scalars.TooLargeError:
        raise _Refused("the number is too large") from None


def _not_finite(text: str) -> NoReturn:
    raise _Refused(f"not a finite number: {text}")


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise _Refused("duplicate key")
    return result


def _check_size(data: object) -> None:
    """Refuse what YAML's limits refuse, and texts that could not be written or passed on."""
    level, depth, values = [data], 0, 0
    while level:
        depth, values = depth + 1, values + len(level)
        if depth > MAX_DEPTH + 1:
            raise _Refused("the file is nested too deeply")
        if values > MAX_VALUES:
            raise _Refused("the file holds too many values")
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
                for name in value:
                    _check_text(name)
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str):
                _check_text(value)
        level = below


def _check_text(text: str) -> None:
    if "\0" in text:
        raise _Refused("a text holds a NUL character, which no path or command can")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise _Refused("not valid JSON: the text is broken")

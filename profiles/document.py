"""Read a YAML or JSON file into typed structs; every complaint names file, line and key."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from libra_plan.errors import InputError, ProfileError, Where
from libra_plan.profiles import wording
from libra_plan.profiles.json_reader import read_json
from libra_plan.profiles.nodes import flatten
from libra_plan.profiles.yaml_reader import read_yaml

__all__ = ["Document", "decode", "parse_document", "read_document", "read_text", "shown"]

MAX_FILE_BYTES = 4 * 2**20

StructT = TypeVar("StructT", bound=msgspec.Struct)


@dataclass(frozen=True)
class Document:
    """The plain data of one file, the line of every dotted key, its name and its SHA-256."""

    data: object
    lines: dict[str, int]
    path: str
    sha256: str

    def where(self, key: str) -> Where:
        """Point at a key, or at the nearest one above it that the file has."""
        nearest = key
        while nearest and nearest not in self.lines:
            nearest = re.sub(r"(\.|^)[^.\[\]]*$|\[[^\]]*\]$", "", nearest)
        return Where(self.path, self.lines.get(nearest), key or None)


def shown(path: str | Path) -> str:
    """Give a path as text that any terminal can print, whatever bytes it holds."""
    return os.fsencode(path).decode("utf-8", "replace")


def read_text(
    path: str | Path, error: type[InputError] = InputError, limit: int = MAX_FILE_BYTES
) -> tuple[str, str]:
    """Read a UTF-8 file; give its text and the SHA-256 of its bytes.

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
    return _decoded(content, error, where), hashlib.sha256(content).hexdigest()


def _decoded(content: bytes, error: type[InputError], where: Where) -> str:
    if b"\0" in content:
        line = content[: content.index(b"\0")].count(b"\n") + 1
        raise error(
            "the file holds NUL bytes",
            way_out="it may have been cut short by a crash: restore it from a copy",
            where=Where(where.file, line),
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content[: problem.start].count(b"\n") + 1
        raise error(
            "the file is not UTF-8",
            got=f"byte 0x{content[problem.start]:02x}",
            way_out="save it as UTF-8",
            where=Where(where.file, line),
        ) from None
    return text


def read_document(path: str | Path, error: type[InputError] = InputError) -> Document:
    """Read a file: JSON when its name ends in `.json`, else YAML 1.2."""
    text, sha256 = read_text(path, error)
    return parse_document(text, shown(path), error, sha256=sha256)


def parse_document(
    text: str, name: str, error: type[InputError] = InputError, *, sha256: str | None = None
) -> Document:
    """Parse text as the file `name` would be."""
    read = read_json if name.endswith(".json") else read_yaml
    root = read(text, name, error)
    lines: dict[str, int] = {}
    data = None if root is None else flatten(root, "", lines)
    if data is None:
        raise error("empty file", allowed="keys and values", where=Where(name))
    digest = sha256 or hashlib.sha256(text.encode()).hexdigest()
    return Document(data, lines, name, digest)


def decode(document: Document, shape: type[StructT], error: type[InputError] = ProfileError) -> StructT:
    """Convert a document to a struct, or say in words what does not fit, where and what would."""
    try:
        return msgspec.convert(document.data, shape, strict=True)
    except msgspec.ValidationError as problem:
        complaint = wording.complaint(str(problem), document.data, shape)
        raise error(
            complaint.what,
            got=complaint.got,
            allowed=complaint.allowed,
            way_out=complaint.way_out,
            where=document.where(complaint.key),
        ) from None

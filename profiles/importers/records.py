"""Read source files as records that know their place: JSON, JSON lines and CSV."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from libra_plan.errors import InputError, ProfileError, Where
from libra_plan.profiles.document import read_text, shown

__all__ = [
    "SourceFiles",
    "SourceRecord",
    "columns_by_file",
    "csv_records",
    "json_records",
    "read_source",
    "records",
]

MAX_SOURCE_BYTES = 64 * 2**20
_LEAST, _LARGEST = 1e-20, 1e20  # nanoseconds since 1970 are 2e18


@dataclass(frozen=True)
class SourceFiles:
    """The texts of one file, or of all files of a folder with the format's endings, by name."""

    path: str
    texts: tuple[tuple[str, str], ...]
    sha256: str

    def refuse(self, what: str, **parts: object) -> NoReturn:
        """Raise an InputError about the source; `parts` are `got`, `allowed` and `way_out`."""
        raise InputError(what, **parts, where=Where(self.path))  # type: ignore[arg-type]


@dataclass(frozen=True)
class SourceRecord:
    """One record: its fields and where it stands (`file` or `file:line`)."""

    where: str
    fields: Mapping[str, Any]

    def number(self, *names: str) -> float | None:
        """Return the first of the named fields that holds a number; None when none does.

        Infinity, and what arithmetic would make it of, is no number of a log.
        """
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, bool) or value is None:
                continue
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                continue
            if number == 0 or _LEAST <= abs(number) <= _LARGEST:
                return number
        return None

    def positive(self, *names: str) -> float | None:
        """Return the first of the named fields that holds a number above 0."""
        number = self.number(*names)
        return number if number is not None and number > 0 else None


def read_source(path: str | Path, endings: tuple[str, ...]) -> SourceFiles:
    """Read a file, or the files of a folder that end as the format's do, in the order of their names."""
    root = Path(path)
    files = [root]
    if root.is_dir():
        files = sorted(each for each in root.iterdir() if each.is_file() and each.suffix in endings)
        if not files:
            allowed = f"files that end in {', '.join(endings)}"
            raise ProfileError("nothing to import in this folder", allowed=allowed, where=Where(shown(root)))
    texts, digests = [], []
    for file in files:
        text, digest = read_text(file, ProfileError, MAX_SOURCE_BYTES)
        texts.append((shown(file.name), text))
        digests.append(digest)
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
    return SourceFiles(os.path.basename(shown(root).rstrip("/")) or shown(root), tuple(texts), digest)  # noqa: PTH119


def records(source: SourceFiles) -> Iterator[SourceRecord]:
    """Read every file of a source: CSV by its ending, else JSON or JSON lines."""
    for name, text in source.texts:
        yield from csv_records(name, text) if name.endswith(".csv") else json_records(name, text)


def columns_by_file(source: SourceFiles) -> list[tuple[str, list[str]]]:
    """List the columns of each file by its name: a header's, or the keys that any JSON record has."""
    files = []
    for name, text in source.texts:
        if name.endswith(".csv"):
            header = next(csv.reader(io.StringIO(text, newline="")), [])
            columns = [cell.strip() for cell in header if cell.strip()]
        else:
            columns = list(dict.fromkeys(key for record in json_records(name, text) for key in record.fields))
        files.append((name, columns))
    return files


def json_records(name: str, text: str) -> Iterator[SourceRecord]:
    """Read one object, a list of objects, or one object a line."""
    try:
        whole = json.loads(text)
    except RecursionError:
        raise ProfileError("the JSON is nested too deeply", where=Where(name)) from None
    except ValueError:  # no JSON, or a number of thousands of digits
        yield from _json_lines(name, text)
        return
    listed = whole if isinstance(whole, list) else [whole]
    for index, item in enumerate(listed):
        where = f"{name}[{index}]" if isinstance(whole, list) else name
        yield SourceRecord(where, _object(item, name, None))


def _json_lines(name: str, text: str) -> Iterator[SourceRecord]:
    for line, part in enumerate(text.splitlines(), start=1):
        if not part.strip():
            continue
        try:
            item = json.loads(part)
        except (ValueError, RecursionError) as problem:
            raise ProfileError(
                "not valid JSON",
                got=getattr(problem, "msg", "too deep, or a number too long"),
                allowed="one JSON object, or one a line",
                way_out="a line that was cut short by a crash can be deleted",
                where=Where(name, line),
            ) from None
        yield SourceRecord(f"{name}:{line}", _object(item, name, line))


def _object(item: object, name: str, line: int | None) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise ProfileError("a record is not a JSON object", got=type(item).__name__, where=Where(name, line))
    return item


def csv_records(name: str, text: str) -> Iterator[SourceRecord]:
    """Read a CSV file whose first row names the columns; empty cells are unknown."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise ProfileError("wrong number of cells", where=Where(name, reader.line_num))
            filled = {key.strip(): cell.strip() for key, cell in row.items() if cell.strip()}
            if filled:
                yield SourceRecord(f"{name}:{reader.line_num}", filled)
    except csv.Error as problem:
        raise ProfileError("not valid CSV", got=problem, where=Where(name, reader.line_num)) from None


UNITS: dict[str, tuple[str, Callable[[float], float]]] = {
    "s": ("s", lambda value: value),
    "ms": ("s", lambda value: value / 1e3),
    "us": ("s", lambda value: value / 1e6),
    "MiB": ("mib", lambda value: value),
    "GiB": ("mib", lambda value: value * 1024.0),
    "B": ("mib", lambda value: value / 2**20),
    "KiB": ("mib", lambda value: value / 1024.0),
    "MB": ("mib", lambda value: value * 1e6 / 2**20),
    "GB": ("mib", lambda value: value * 1e9 / 2**20),
}
"""Units a column may be in: what it is converted to, and how. GB is 10⁹ bytes, GiB 2³⁰."""

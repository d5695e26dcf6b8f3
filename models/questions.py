"""Read a table of questions for cost models: each row is one question about one role."""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from libra_plan.errors import InputError, Where
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query
from libra_plan.profiles.document import read_text, shown
from libra_plan.profiles.schema import Phase
from libra_plan.profiles.wording import did_you_mean

__all__ = ["COLUMNS", "BadQuestion", "CostQuestion", "Questions", "read_questions"]

_ROLES: dict[str, Phase] = {"decode": "decode", "serve": "serve", "score": "score", "train": "train"}
_TEXTS = ("role", "model", "precision", "recompute", "mode", "framework", "gpu_class", "profile")
_SIZES = ("batch", "seq_len", "isl", "osl")
_DEGREES = ("tp", "pp", "cp", "ep", "dp")
COLUMNS = (*_TEXTS, *_SIZES, *_DEGREES)
_NEEDED = ("role", "model", "batch")
_LARGEST_BYTES = 256 * 2**20
_MOST_RANKS = 2**20


@dataclass(frozen=True, slots=True)
class CostQuestion:
    """One row. What it does not state is None (`model` is empty when `profile` names the answerer)."""

    line: int
    phase: Phase
    model: str
    precision: str | None
    recompute: str | None
    mode: str | None
    framework: str | None
    gpu_class: str | None
    profile: str | None
    query: Query

    @property
    def identity(self) -> tuple[object, ...]:
        """All that decides which profile answers."""
        stated = (self.phase, self.model, self.precision, self.recompute, self.mode)
        return (*stated, self.framework, self.gpu_class, self.profile, self.query.layout)


@dataclass(frozen=True, slots=True)
class BadQuestion:
    """A row that cannot be answered: its cells by column, and the reason."""

    line: int
    said: Mapping[str, str]
    reason: InputError


@dataclass(frozen=True)
class Questions:
    """The rows of a file in order, its name, and the columns that were not read."""

    rows: tuple[CostQuestion | BadQuestion, ...]
    path: str
    unused: tuple[str, ...]


def read_questions(path: str | Path) -> Questions:
    """Read a CSV file of questions; an empty cell states nothing, other columns are left alone.

    `batch` is in sequences, `seq_len` (context or sequence), `isl` and `osl` (prompt and output of
    serving tables) in tokens. A row that is wrong on its own becomes a `BadQuestion`: the others are
    answered all the same. A file that is no table of questions is refused.
    """
    text, _ = read_text(path, InputError, _LARGEST_BYTES)
    name = shown(path)
    records = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[CostQuestion | BadQuestion] = []
    header: list[str] | None = None
    unused: tuple[str, ...] = ()
    try:
        for cells in records:
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header, unused = _header(cells, Where(name, records.line_num))
            else:
                rows.append(_row(header, cells, Where(name, records.line_num)))
    except csv.Error as problem:
        raise InputError("not valid CSV", got=problem, where=Where(name, records.line_num)) from None
    if not rows:
        raise InputError("no question in this file", allowed="a header and a row each", where=Where(name))
    return Questions(tuple(rows), name, unused)


def _header(cells: Sequence[str], where: Where) -> tuple[list[str], tuple[str, ...]]:
    names = [cell.strip() for cell in cells]
    missing = [name for name in _NEEDED if name not in names and not (name == "model" and "profile" in names)]
    if missing:
        near = [guess for name in missing for guess in difflib.get_close_matches(name, names, n=1)]
        raise InputError(
            f"column `{missing[0]}` is missing",
            got=", ".join(names),
            allowed=", ".join(COLUMNS),
            way_out=f"rename `{near[0]}`" if near else "the first row names the columns",
            where=where,
        )
    for name in names:
        if name in COLUMNS and names.count(name) > 1:
            raise InputError(f"column `{name}` stands twice", where=where)
    unused = tuple(name for name in names if name not in COLUMNS)
    for name in unused:  # a misspelt column would be a question that was not meant
        near = difflib.get_close_matches(name, [known for known in COLUMNS if known not in names], 1, 0.8)
        if near:
            raise InputError(f"unknown column `{name}`", way_out=f"did you mean `{near[0]}`?", where=where)
    return names, unused


def _row(header: Sequence[str], cells: Sequence[str], where: Where) -> CostQuestion | BadQuestion:
    try:
        return _question(header, cells, where)
    except InputError as reason:
        said = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if cell.strip()}
        return BadQuestion(where.line or 0, said, reason)


def _question(header: Sequence[str], cells: Sequence[str], where: Where) -> CostQuestion:
    if len(cells) != len(header):
        raise InputError("wrong number of cells", got=len(cells), allowed=len(header), where=where)
    said = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
    phase = _ROLES.get(said.get("role", ""))
    if phase is None:
        raise InputError(
            "unknown role",
            got=said.get("role") or "nothing",
            allowed=", ".join(_ROLES),
            way_out=did_you_mean(said.get("role", ""), _ROLES)
            or "the role says which phase of a profile answers",
            where=Where(where.file, where.line, "role"),
        )
    if "model" not in said and "profile" not in said:
        raise InputError("no model is stated", where=Where(where.file, where.line, "model"))
    sizes = {name: _size(said[name], where, name) for name in _SIZES if name in said}
    if "batch" not in sizes:
        raise InputError("no batch is stated", where=Where(where.file, where.line, "batch"))
    degrees = {name: _degree(said[name], where, name) for name in _DEGREES if name in said}
    ranks = degrees.pop("dp", 1)
    lengths = (sizes.get("seq_len"), sizes.get("isl"), sizes.get("osl"))
    query = Query(sizes["batch"], *lengths, Layout(**degrees), ranks)
    texts = {name: said.get(name) for name in _TEXTS if name not in ("role", "model")}
    return CostQuestion(where.line or 0, phase, said.get("model", ""), query=query, **texts)


def _size(text: str, where: Where, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(
            "not a size",
            got=text,
            allowed="a number above 0",
            where=Where(where.file, where.line, name),
        )
    return value


def _degree(text: str, where: Where, name: str) -> int:
    value = _size(text, where, name)
    if value != int(value) or value > _MOST_RANKS:
        raise InputError(
            "not a whole number" if value != int(value) else "not a degree of parallelism",
            got=text,
            allowed=f"1, 2, 4 … at most {_MOST_RANKS}",
            where=Where(where.file, where.line, name),
        )
    return int(value)

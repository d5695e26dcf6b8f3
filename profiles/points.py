"""Read and write `points.csv`, and set aside rows that physics forbids."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from libra_plan.errors import ProfileError, Where
from libra_plan.profiles import wording
from libra_plan.profiles.document import read_text, shown
from libra_plan.profiles.scalars import NotFiniteError, TooLargeError, plain
from libra_plan.profiles.schema import Phase, Point

__all__ = ["COLUMNS", "PointRow", "PointsTable", "lacking", "points_text", "read_points"]

COLUMNS: tuple[str, ...] = Point.__struct_fields__
KEY_COLUMNS = (
    "batch_sequences",
    "seq_len_tokens",
    "prompt_tokens",
    "output_tokens",
    "tp",
    "pp",
    "cp",
    "ep",
    "dp",
)
DUPLICATE_TOLERANCE = 0.05  # repeats of one measurement agree within 0.2-1 %; 5 % is another measurement
MAX_POINTS_BYTES = 8 * 2**20
MAX_POINTS = 5000  # the checks compare every pair of rows; a profile is one model, phase and stack

_DEFAULTS = dict(zip(COLUMNS[-len(Point.__struct_defaults__) :], Point.__struct_defaults__, strict=True))
_TEXT_COLUMNS = frozenset({"status"})
_NEEDED = {
    "decode": ("seq_len_tokens",),
    "serve": ("prompt_tokens", "output_tokens"),
    "score": ("seq_len_tokens",),
    "train": ("seq_len_tokens",),
}


@dataclass(frozen=True, slots=True)
class PointRow:
    """One point and its line in the file."""

    line: int
    point: Point


@dataclass(frozen=True)
class PointsTable:
    """The rows of a file in file order, its name and its SHA-256."""

    rows: tuple[PointRow, ...]
    path: str
    sha256: str

    @property
    def points(self) -> tuple[Point, ...]:
        """The points without their lines."""
        return tuple(row.point for row in self.rows)


def read_points(path: str | Path, phase: Phase | None = None) -> PointsTable:
    """Read a points file; with a phase, also require what a point of that phase must state.

    Columns are the fields of `schema.Point`, in any order, units in the name; an empty cell is an
    unknown value. Rows with status `oom` or `failed` stay: they bound what fits.
    """
    text, sha256 = read_text(path, ProfileError, MAX_POINTS_BYTES)
    name = shown(path)
    records = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    rows: list[PointRow] = []
    line = 1
    try:
        for cells in records:
            if any(cell.strip() for cell in cells):
                if header is None:
                    header = _header(cells, Where(name, line))
                else:
                    rows.append(PointRow(line, _point(header, cells, name, line, phase)))
            line = records.line_num + 1
    except csv.Error as problem:
        raise ProfileError("not valid CSV", got=problem, where=Where(name, records.line_num)) from None
    if header is None or not rows:
        raise ProfileError("empty file", allowed="a header and at least one row", where=Where(name))
    if len(rows) > MAX_POINTS:
        way_out = "put different models, phases or stacks into profiles of their own"
        raise ProfileError(
            "too many points", got=len(rows), allowed=MAX_POINTS, way_out=way_out, where=Where(name)
        )
    _refuse_contradictions(rows, name)
    return PointsTable(tuple(rows), name, sha256)


def points_text(points: Iterable[Point]) -> str:
    """Write points as CSV text: the columns in use, in the order of the schema, one row a point."""
    listed = list(points)
    used = [
        name
        for name in COLUMNS
        if name in ("status", "batch_sequences") or any(getattr(p, name) != _DEFAULTS[name] for p in listed)
    ]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(used)
    for point in listed:
        values = [getattr(point, name) for name in used]
        writer.writerow(["" if value is None else value for value in values])
    return text.getvalue()


def _header(cells: Sequence[str], where: Where) -> list[str]:
    names = [cell.strip() for cell in cells]
    for index, name in enumerate(names):
        at = Where(where.file, where.line, name or f"column {index + 1}")
        if name not in COLUMNS:
            raise ProfileError(
                f"unknown column `{name}`",
                allowed=wording.one_of(COLUMNS),
                way_out=wording.did_you_mean(name, COLUMNS) or "the first row names the columns",
                where=at,
            )
        if name in names[:index]:
            raise ProfileError(f"column `{name}` stands twice", where=at)
    if "batch_sequences" not in names:
        raise ProfileError(
            "column `batch_sequences` is missing", allowed=wording.one_of(COLUMNS), where=where
        )
    return names


def _point(header: list[str], cells: list[str], file: str, line: int, phase: Phase | None) -> Point:
    if len(cells) != len(header):
        raise ProfileError(
            "wrong number of cells", got=len(cells), allowed=len(header), where=Where(file, line)
        )
    values = {
        name: _cell(name, cell.strip(), Where(file, line, name))
        for name, cell in zip(header, cells, strict=True)
        if cell.strip()
    }
    try:
        point = msgspec.convert(values, Point, strict=True)
    except msgspec.ValidationError as problem:
        said = wording.complaint(str(problem), values, Point)
        raise said.error(ProfileError, Where(file, line, said.key)) from None
    _require(point, file, line, phase)
    return point


def _cell(name: str, text: str, where: Where) -> object:
    if name in _TEXT_COLUMNS:
        return text
    try:
        return plain(text)
    except NotFiniteError:
        raise ProfileError(
            "not a finite number", got=text, way_out="leave the cell empty when unknown", where=where
        ) from None
    except TooLargeError as problem:
        raise ProfileError("the number is too large", got=problem, where=where) from None


def _require(point: Point, file: str, line: int, phase: Phase | None) -> None:
    if point.status != "ok" and point.time_s is not None:
        raise ProfileError(
            f"a row with status {point.status} states a time",
            got=point.time_s,
            way_out="leave time_s empty or set status to ok",
            where=Where(file, line, "time_s"),
        )
    for name in _missing(point, phase):
        way_out = f"a row of status {point.status} needs it" + (f" in phase {phase}" if phase else "")
        raise ProfileError(f"`{name}` is empty", way_out=way_out, where=Where(file, line, name))
    _ordered(point, ("time_low_s", "time_s", "time_high_s"), Where(file, line, "time_s"))


def _missing(point: Point, phase: Phase | None) -> list[str]:
    needed = (*(_NEEDED[phase] if phase else ()), *(("time_s",) if point.status == "ok" else ()))
    return [name for name in needed if getattr(point, name) is None]


def lacking(point: Point, phase: Phase) -> str | None:
    """Return what a point of this phase lacks, or None."""
    return next((f"no {name}" for name in _missing(point, phase)), None)


def _ordered(point: Point, names: tuple[str, ...], where: Where) -> None:
    known = [(name, getattr(point, name)) for name in names if getattr(point, name) is not None]
    for (low_name, low), (high_name, high) in itertools.pairwise(known):
        if low > high:
            raise ProfileError(f"`{low_name}` is above `{high_name}`", got=f"{low} > {high}", where=where)


def key_of(point: Point) -> tuple[object, ...]:
    """Return what identifies a measurement: sizes and layout."""
    return tuple(getattr(point, name) for name in KEY_COLUMNS)


def _refuse_contradictions(rows: Sequence[PointRow], file: str) -> None:
    first: dict[tuple[object, ...], PointRow] = {}
    for row in rows:
        earlier = first.setdefault(key_of(row.point), row)
        if earlier is row:
            continue
        a, b = earlier.point, row.point
        alike = a.status == b.status and (
            a.time_s is None
            or b.time_s is None
            or abs(a.time_s - b.time_s) <= DUPLICATE_TOLERANCE * max(a.time_s, b.time_s)
        )
        if not alike:
            raise ProfileError(
                "two rows of one measurement contradict each other",
                got=f"{_result(a)} on line {earlier.line}, {_result(b)} on line {row.line}",
                allowed=f"repeats within {DUPLICATE_TOLERANCE:.0%}",
                way_out="keep the right one; different software or modes belong in different profiles",
                where=Where(file, row.line),
            )


def _result(point: Point) -> str:
    return point.status if point.time_s is None else f"{re.sub('0+$', '', f'{point.time_s:.6f}')} s"

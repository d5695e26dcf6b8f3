"""Turn the messages of the schema library into words for people."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import inspect

__all__ = [
    "Complaint",
    "complaint",
    "did_you_mean",
    "edit_distance",
    "kind_of",
    "nearest_first",
    "one_of",
    "some_of",
]

_AT = re.compile(r" - at `(?:key in )?\$(?P<path>.*)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNIT = re.compile(r"_(s|ms|us|min|h|b|kb|mb|gb|kib|mib|gib|bytes|tokens|(gib|gb|mib|mb)_per_s|gbps)$")
_NUMERIC = re.compile(r"\s*[-+]?(\d[\d_,]*\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_NUMBER_AND_UNIT = re.compile(r"\s*[-+]?[\d.,_]+\s*[A-Za-z/]+\s*")
_LONGEST_SHOWN = 60
_MOST_NAMES = 8


@dataclass(frozen=True)
class Complaint:
    """The four parts of a message and the dotted key it is about."""

    key: str
    what: str
    got: str | None = None
    allowed: str | None = None
    way_out: str | None = None


def one_of(names: Iterable[object]) -> str:
    """List what may stand in a place."""
    return ", ".join(str(name) for name in names) or "nothing"


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Suggest the known name nearest to a wrong one; a different unit alone is told as such."""
    names = list(known)
    bare = _UNIT.sub("", name.lower())
    for other in names:
        if other != name and _UNIT.sub("", other) == bare and _UNIT.search(other):
            return f"did you mean `{other}`? the unit is part of the key, convert the value to it"
    close = nearest_first(name, difflib.get_close_matches(name.lower(), names, n=5, cutoff=0.6))
    alike = [other for other in names if other != name and other.lower() == name.lower()]
    return f"did you mean `{(alike or close)[0]}`?" if alike or close else None


def nearest_first(name: str, known: Iterable[str]) -> list[str]:
    """Order names by how few letters must change to make them of `name`; case is a lesser slip."""
    return sorted(
        dict.fromkeys(known),
        key=lambda other: (edit_distance(name.lower(), other.lower()), edit_distance(name, other), other),
    )


def edit_distance(one: str, other: str) -> int:
    """Count the letters to insert, delete, replace or swap with their neighbour (Damerau 1964)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, start=1):
        older, before, row = before, row, [at]
        for place, wanted in enumerate(other, start=1):
            cost = min(before[place] + 1, row[-1] + 1, before[place - 1] + (letter != wanted))
            if at > 1 and place > 1 and letter == other[place - 2] and one[at - 2] == wanted:
                cost = min(cost, older[place - 2] + 1)
            row.append(cost)
    return row[-1]


def some_of(name: str, known: Iterable[str], most: int = _MOST_NAMES) -> str:
    """List at most so many of the known names, the nearest to `name` first, and count the rest."""
    ordered = nearest_first(name, known)
    left = len(ordered) - most
    return one_of(ordered[:most]) + (f" and {left} more" if left > 0 else "")


def kind_of(value: object) -> str:
    """Name a value and its kind as the user wrote it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        text = value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "…"
        return f"the text {text!r}"
    return "a list" if isinstance(value, list) else "a mapping of keys"


def complaint(message: str, data: object, shape: type[msgspec.Struct]) -> Complaint:
    """Explain one validation error of `msgspec.convert(data, shape)`."""
    found = _AT.search(message)
    path = _with_entry_named(found["path"], message, data, shape) if found else ""
    reason = message[: found.start()] if found else message
    steps = _steps(path)
    expected, value = _follow(inspect.type_info(shape), data, steps)
    key = path.lstrip(".").replace("[...]", "")
    unknown, missing = _UNKNOWN.fullmatch(reason), _MISSING.fullmatch(reason)
    if unknown:
        return _unknown_key(key, unknown[1], expected)
    if missing:
        return _missing_key(key, missing[1], expected)
    words = _words(expected)
    return Complaint(
        key, f"expected {words}", kind_of(value), _values(expected), _way_out(expected, value, key)
    )


def _steps(path: str) -> list[str | int]:
    return [name if name else (-1 if index == "..." else int(index)) for name, index in _STEP.findall(path)]


def _with_entry_named(path: str, message: str, data: object, shape: type[msgspec.Struct]) -> str:
    """Put back the key of a dictionary that the library hides: that of the entry refused in these words."""
    before, hidden, after = path.partition("[...]")
    entries = data
    for step in _steps(before):
        entries = _inside(entries, step)
    if not hidden or not isinstance(entries, dict):
        return path
    for name, item in entries.items():
        try:
            msgspec.convert(_replaced(data, _steps(before), {name: item}), shape, strict=True)
        except msgspec.ValidationError as problem:
            if str(problem) == message:
                return f"{before}.{name}{after}"
    return path


def _replaced(data: object, steps: Sequence[str | int], value: object) -> object:
    """Copy data with another value at a place."""
    if not steps:
        return value
    inner = _replaced(_inside(data, steps[0]), steps[1:], value)
    if isinstance(data, list):
        return [inner if at == steps[0] else item for at, item in enumerate(data)]
    return {**data, steps[0]: inner} if isinstance(data, dict) else data


def _follow(expected: inspect.Type, value: object, steps: Sequence[str | int]) -> tuple[inspect.Type, object]:
    expected = _chosen(expected, value)
    for step in steps:
        if isinstance(expected, inspect.StructType):
            fields = {field.encode_name: field.type for field in expected.fields}
            inner = fields.get(str(step)) or inspect.LiteralType(values=_tags(expected))
        elif isinstance(expected, inspect.VarTupleType):
            inner = expected.item_type
        elif isinstance(expected, inspect.DictType):
            inner = expected.value_type
        elif isinstance(expected, inspect.UnionType):  # no branch has the tag the file gives
            inner = inspect.LiteralType(values=_tags(expected))
        else:
            inner = inspect.AnyType()
        value = _inside(value, step)
        expected = _chosen(inner, value)
    return expected, value


def _inside(value: object, step: str | int) -> object:
    if isinstance(value, dict):
        if step == -1:  # the library hides the key of a dictionary: show the value that looks wrong
            return next((item for item in value.values() if isinstance(item, (list, dict, type(None)))), None)
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and -1 < step < len(value):
        return value[step]
    return None


def _chosen(expected: inspect.Type, value: object) -> inspect.Type:
    """Pick the branch of a union that the value speaks for; the value None picks none of them."""
    if not isinstance(expected, inspect.UnionType):
        return expected
    branches = [item for item in expected.types if not isinstance(item, inspect.NoneType)]
    if len(branches) == 1:
        return branches[0]
    structs = [item for item in branches if isinstance(item, inspect.StructType)]
    tag = value.get(str(structs[0].tag_field)) if structs and isinstance(value, dict) else None
    return next((item for item in structs if item.tag == tag and tag is not None), expected)


def _tags(expected: inspect.Type) -> tuple[str, ...]:
    types = expected.types if isinstance(expected, inspect.UnionType) else (expected,)
    return tuple(str(item.tag) for item in types if isinstance(item, inspect.StructType) and item.tag)


def _keys(expected: inspect.Type) -> list[str]:
    if isinstance(expected, inspect.StructType):
        own = [expected.tag_field] if expected.tag_field else []
        return own + [field.encode_name for field in expected.fields]
    if isinstance(expected, inspect.UnionType):
        return list(dict.fromkeys(key for item in expected.types for key in _keys(item)))
    return []


def _unknown_key(key: str, name: str, expected: inspect.Type) -> Complaint:
    keys = _keys(expected)
    full = f"{key}.{name}" if key else name
    return Complaint(full, f"unknown key `{name}`", None, one_of(keys), did_you_mean(name, keys))


def _missing_key(key: str, name: str, expected: inspect.Type) -> Complaint:
    fields = {field.encode_name: field.type for field in _fields(expected)}
    if name in fields:
        return Complaint(key, f"key `{name}` is missing", None, None, f"add it: {_words(fields[name])}")
    return Complaint(key, f"key `{name}` is missing", None, one_of(_tags(expected)), "say which is meant")


def _fields(expected: inspect.Type) -> tuple[inspect.Field, ...]:
    return expected.fields if isinstance(expected, inspect.StructType) else ()


def _limits(expected: inspect.IntType | inspect.FloatType) -> str:
    signs = ((">", expected.gt), ("≥", expected.ge), ("<", expected.lt), ("≤", expected.le))
    limits = [f"{sign} {limit:.10g}" for sign, limit in signs if limit is not None]
    return f" {' and '.join(limits)}" if limits else ""


def _words(expected: inspect.Type) -> str:
    if isinstance(expected, inspect.UnionType):
        kinds = dict.fromkeys(
            _words(item) for item in expected.types if not isinstance(item, inspect.NoneType)
        )
        return " or ".join(kinds)
    if isinstance(expected, inspect.LiteralType):
        return "one of the allowed values" if len(expected.values) > 1 else f"the value {expected.values[0]}"
    if isinstance(expected, inspect.IntType):
        return f"a whole number{_limits(expected)}"
    if isinstance(expected, inspect.FloatType):
        return f"a number{_limits(expected)}"
    if isinstance(expected, inspect.StrType):
        return _text_words(expected)
    if isinstance(expected, inspect.StructType):
        return "a mapping of keys"
    names = {
        inspect.BoolType: "true or false",
        inspect.VarTupleType: "a list",
        inspect.DictType: "a mapping of keys",
    }
    return names.get(type(expected), "another value")


def _text_words(expected: inspect.StrType) -> str:
    if expected.pattern is None:
        return "text"
    if "0-9a-f" in expected.pattern:
        return "a SHA-256 in 64 lower-case hexadecimal digits"
    most = f", at most {expected.max_length} characters" if expected.max_length else ""
    return f"a name of letters, digits, `.`, `_` and `-` that begins and ends with a letter or digit{most}"


def _values(expected: inspect.Type) -> str | None:
    if isinstance(expected, inspect.LiteralType):
        return one_of(expected.values) if len(expected.values) > 1 else None
    if isinstance(expected, (inspect.StructType, inspect.UnionType)) and _keys(expected):
        return "keys " + one_of(_keys(expected))
    return None


def _way_out(expected: inspect.Type, value: object, key: str) -> str | None:
    numeric = isinstance(expected, (inspect.IntType, inspect.FloatType))
    if numeric and isinstance(value, str):
        if _NUMERIC.fullmatch(value):
            return "write the number without quotes" + (" or separators" if re.search("[_,]", value) else "")
        if _NUMBER_AND_UNIT.fullmatch(value):
            return "write the number alone: its unit is in the key"
    if isinstance(expected, inspect.StrType) and isinstance(value, (bool, int, float)):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return f'quote it: "{text}"'
    if isinstance(expected, inspect.VarTupleType) and not isinstance(value, (dict, list)):
        return "write it as a list: [ … ]"
    if key == "schema_version":
        return "this version of libra-plan reads no other"
    if value is None:
        return "give a value or leave the key out"
    return None

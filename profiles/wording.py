"""Rewrite the messages of the schema library for people, and suggest names that were meant."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import inspect

from libra_plan.errors import InputError, Where

__all__ = ["Complaint", "complaint", "did_you_mean", "nearest_first", "one_of", "some_of"]

_AT = re.compile(r" - at `(?:key in )?\$(?P<path>.*)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNIT = re.compile(r"_(s|ms|us|min|h|b|kb|mb|gb|kib|mib|gib|bytes|tokens|(gib|gb|mib|mb)_per_s|gbps)$")
_NUMERIC = re.compile(r"\s*[-+]?(\d[\d_,]*\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_NUMBER_AND_UNIT = re.compile(r"\s*[-+]?[\d.,_]+\s*[A-Za-z/]+\s*")
_LONGEST_SHOWN = 60
_MOST_NAMES = 8
_HIDDEN = -1  # the index that stands for a dictionary's key, which the library does not tell

Steps = Sequence[str | int]


# ---------------------------------------------------------------- names


def one_of(names: Iterable[object]) -> str:
    """List what may stand in a place."""
    return ", ".join(str(name) for name in names) or "nothing"


def some_of(name: str, known: Iterable[str]) -> str:
    """List some of the known names, the nearest to `name` first, and count the rest."""
    ordered = nearest_first(name, known)
    left = len(ordered) - _MOST_NAMES
    return one_of(ordered[:_MOST_NAMES]) + (f" and {left} more" if left > 0 else "")


def nearest_first(name: str, known: Iterable[str]) -> list[str]:
    """Order names by how alike they are to `name`; a difference in case counts least."""

    def likeness(other: str) -> tuple[float, float]:
        lower = difflib.SequenceMatcher(None, other.lower(), name.lower())
        return -lower.ratio(), -difflib.SequenceMatcher(None, other, name).ratio()

    return sorted(dict.fromkeys(known), key=lambda other: (*likeness(other), other))


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Suggest the known name nearest to a wrong one; say so where only the unit differs."""
    names = list(known)
    bare = _UNIT.sub("", name.lower())
    for other in names:
        if other != name and _UNIT.sub("", other) == bare and _UNIT.search(other):
            return f"did you mean `{other}`? the unit is part of the key, convert the value to it"
    alike = [other for other in names if other != name and other.lower() == name.lower()]
    close = alike or nearest_first(name, difflib.get_close_matches(name.lower(), names, n=5, cutoff=0.6))
    return f"did you mean `{close[0]}`?" if close else None


# ---------------------------------------------------------------- validation errors


@dataclass(frozen=True)
class Complaint:
    """The four parts of a message and the dotted key it is about."""

    key: str
    what: str
    got: str | None = None
    allowed: str | None = None
    way_out: str | None = None

    def error(self, error: type[InputError], where: Where) -> InputError:
        """Make the error for a place."""
        return error(self.what, got=self.got, allowed=self.allowed, way_out=self.way_out, where=where)


def complaint(message: str, data: object, shape: type[msgspec.Struct]) -> Complaint:
    """Explain one validation error of `msgspec.convert(data, shape)`."""
    found = _AT.search(message)
    path = _with_entry_named(found["path"], message, data, shape) if found else ""
    reason = message[: found.start()] if found else message
    expected, value = _follow(inspect.type_info(shape), data, _steps(path))
    key = path.lstrip(".").replace("[...]", "")
    if unknown := _UNKNOWN.fullmatch(reason):
        name, keys = unknown[1], _keys(expected)
        full = f"{key}.{name}" if key else name
        return Complaint(full, f"unknown key `{name}`", None, one_of(keys), did_you_mean(name, keys))
    if missing := _MISSING.fullmatch(reason):
        what = f"key `{missing[1]}` is missing"
        if isinstance(expected, inspect.StructType):
            for field in expected.fields:
                if field.encode_name == missing[1]:
                    return Complaint(key, what, None, None, f"add it: {_words(field.type)}")
        return Complaint(key, what, None, one_of(_tags(expected)), "say which is meant")
    what = f"expected {_words(expected)}"
    return Complaint(key, what, _described(value), _values(expected), _way_out(expected, value, key))


def _described(value: object) -> str:
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


def _steps(path: str) -> list[str | int]:
    return [
        name if name else (_HIDDEN if index == "..." else int(index)) for name, index in _STEP.findall(path)
    ]


def _with_entry_named(path: str, message: str, data: object, shape: type[msgspec.Struct]) -> str:
    """Restore the key of a dictionary that the library hides: that of the entry with this message."""
    before, hidden, after = path.partition("[...]")
    steps = _steps(before)
    entries = _at(data, steps)
    if not hidden or not isinstance(entries, dict):
        return path
    for name, item in entries.items():
        trial = copy.deepcopy(data)
        alone = _at(trial, steps)
        assert isinstance(alone, dict)
        alone.clear()
        alone[name] = item
        try:
            msgspec.convert(trial, shape, strict=True)
        except msgspec.ValidationError as problem:
            if str(problem) == message:
                return f"{before}.{name}{after}"
    return path


def _at(value: object, steps: Steps) -> object:
    for step in steps:
        value = _inside(value, step)
    return value


def _inside(value: object, step: str | int) -> object:
    if isinstance(value, dict):
        if step == _HIDDEN:  # show the value that looks wrong
            return next((item for item in value.values() if isinstance(item, (list, dict, type(None)))), None)
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and _HIDDEN < step < len(value):
        return value[step]
    return None


def _follow(expected: inspect.Type, value: object, steps: Steps) -> tuple[inspect.Type, object]:
    """Return the type expected at a place, and the value there."""
    expected = _chosen(expected, value)
    for step in steps:
        inner: inspect.Type = inspect.AnyType()
        if isinstance(expected, inspect.StructType):
            fields = {field.encode_name: field.type for field in expected.fields}
            inner = fields.get(str(step)) or inspect.LiteralType(values=_tags(expected))
        elif isinstance(expected, inspect.VarTupleType):
            inner = expected.item_type
        elif isinstance(expected, inspect.DictType):
            inner = expected.value_type
        elif isinstance(expected, inspect.UnionType):  # no branch has the tag the file gives
            inner = inspect.LiteralType(values=_tags(expected))
        value = _inside(value, step)
        expected = _chosen(inner, value)
    return expected, value


def _chosen(expected: inspect.Type, value: object) -> inspect.Type:
    """Return the branch of a union that a value belongs to, which is never the branch for None."""
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


def _words(expected: inspect.Type) -> str:
    if isinstance(expected, inspect.UnionType):
        kinds = (_words(item) for item in expected.types if not isinstance(item, inspect.NoneType))
        return " or ".join(dict.fromkeys(kinds))
    if isinstance(expected, inspect.LiteralType):
        return "one of the allowed values" if len(expected.values) > 1 else f"the value {expected.values[0]}"
    if isinstance(expected, (inspect.IntType, inspect.FloatType)):
        signs = ((">", expected.gt), ("≥", expected.ge), ("<", expected.lt), ("≤", expected.le))
        limits = " and ".join(f"{sign} {limit:.10g}" for sign, limit in signs if limit is not None)
        kind = "a whole number" if isinstance(expected, inspect.IntType) else "a number"
        return f"{kind} {limits}".rstrip()
    if isinstance(expected, inspect.StrType):
        return _text_words(expected)
    if isinstance(expected, (inspect.StructType, inspect.DictType)):
        return "a mapping of keys"
    names = {inspect.BoolType: "true or false", inspect.VarTupleType: "a list"}
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
    keys = _keys(expected)
    return "keys " + one_of(keys) if keys else None


def _way_out(expected: inspect.Type, value: object, key: str) -> str | None:
    if isinstance(expected, (inspect.IntType, inspect.FloatType)) and isinstance(value, str):
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

"""Resolve unquoted words in a file by the core schema of YAML 1.2.2, section 10.3.2.

PyYAML follows YAML 1.1, where `no` is false, `1:30` is 90, `010` is 8 and `1e9` is text. Files of
users mean what they say, so words are resolved here.
"""

from __future__ import annotations

import math
import re
from typing import TypeAlias

__all__ = ["NotFiniteError", "Scalar", "TooLargeError", "number", "plain"]

Scalar: TypeAlias = "str | int | float | bool | None"

_LARGEST_INTEGER = 2**63 - 1
_LONGEST_NUMBER = 400

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|[-+]?(NaN|Infinity|nan|inf)")


class NotFiniteError(ValueError):
    """NaN or infinity, which no quantity can be."""


class TooLargeError(ValueError):
    """A number that a file has no use for and that arithmetic would not hold."""


def number(text: str) -> int | float:
    """Convert decimal digits; `1e9` is whole, so that it may stand where a count is wanted."""
    if len(text) > _LONGEST_NUMBER:
        raise TooLargeError(text[:20] + "…")
    if _INTEGER.fullmatch(text):
        return _bounded(int(text), text)
    value = float(text)
    if not math.isfinite(value):
        raise TooLargeError(text)
    if ("e" in text or "E" in text) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    return value


def plain(text: str) -> Scalar:
    """Resolve an unquoted word to text, a number, true, false or nothing."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _NOT_FINITE.fullmatch(text):
        raise NotFiniteError(text)
    if _FLOAT.fullmatch(text):
        return number(text)
    for pattern, base in ((_OCTAL, 8), (_HEX, 16)):
        if pattern.fullmatch(text):
            if len(text) > _LONGEST_NUMBER:
                raise TooLargeError(text[:20] + "…")
            return _bounded(int(text[2:], base), text)
    return text


def _bounded(value: int, text: str) -> int:
    if abs(value) > _LARGEST_INTEGER:
        raise TooLargeError(text)
    return value

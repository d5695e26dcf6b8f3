"""Read JSON (RFC 8259) into nodes: the standard reader knows no lines and keeps the last duplicate."""

from __future__ import annotations

import json
import re
from bisect import bisect_right

from libra_plan.errors import InputError
from libra_plan.profiles import scalars
from libra_plan.profiles.nodes import Builder, Mapping, Node, Scalar, ScalarValue, Sequence

__all__ = ["read_json"]

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"-?[A-Za-z]+")
_scan_string = json.decoder.scanstring  # type: ignore[attr-defined]  # in C; gives text and end position
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def read_json(text: str, file: str, error: type[InputError]) -> Node | None:
    """Parse one JSON value; None when the file holds nothing."""
    reader = _Reader(text, file, error)
    start = reader.skip(0)
    if start == len(text):
        return None
    end = reader.skip(reader.value(start))
    if end != len(text):
        raise reader.fail("text after the end of the JSON value", end)
    return reader.builder.root


class _Reader:
    def __init__(self, text: str, file: str, error: type[InputError]) -> None:
        self.text = text
        self.builder = Builder(file, error)
        self._newlines = [match.start() for match in re.finditer("\n", text)]

    def line(self, position: int) -> int:
        return bisect_right(self._newlines, position - 1) + 1

    def fail(self, what: str, position: int, **parts: str) -> InputError:
        near = self.text[position : position + 20]
        parts.setdefault("got", repr(near) if near else "the end")
        return self.builder.fail(what, self.line(position), **parts)

    def skip(self, position: int) -> int:
        match = _SPACE.match(self.text, position)
        return position if match is None else match.end()

    def value(self, position: int) -> int:
        first = self.text[position : position + 1]
        if first == "{":
            return self._container(position, Mapping(self.line(position)), "}")
        if first == "[":
            return self._container(position, Sequence(self.line(position)), "]")
        value, end = self._scalar(position)
        self.builder.add(Scalar(value, self.line(position)))
        return end

    def _container(self, position: int, node: Mapping | Sequence, closing: str) -> int:
        self.builder.open(node)
        position = self.skip(position + 1)
        if self.text[position : position + 1] == closing:
            self.builder.close()
            return position + 1
        while True:
            if isinstance(node, Mapping):
                position = self._key(position)
            position = self.skip(self.value(position))
            following = self.text[position : position + 1]
            if following == closing:
                self.builder.close()
                return position + 1
            if following != ",":
                raise self.fail(f"not valid JSON: expected `,` or `{closing}`", position)
            position = self.skip(position + 1)

    def _key(self, position: int) -> int:
        if self.text[position : position + 1] != '"':
            raise self.fail("not valid JSON: expected a key in double quotes", position)
        name, end = self._string(position)
        self.builder.key(name, self.line(position))
        end = self.skip(end)
        if self.text[end : end + 1] != ":":
            raise self.fail("not valid JSON: expected `:` after the key", end)
        return self.skip(end + 1)

    def _string(self, position: int) -> tuple[str, int]:
        try:
            value, end = _scan_string(self.text, position + 1, True)
            value.encode()  # a lone surrogate could not be written again
        except (json.JSONDecodeError, UnicodeEncodeError):
            raise self.fail("not valid JSON: the text is broken", position) from None
        if "\0" in value:
            raise self.fail("a text holds a NUL character, which no path or command can", position)
        return value, end

    def _scalar(self, position: int) -> tuple[ScalarValue, int]:
        if self.text[position : position + 1] == '"':
            return self._string(position)
        word = _WORD.match(self.text, position)
        if word is not None and word[0] in _WORDS:
            return _WORDS[word[0]], word.end()
        if word is not None and word[0].lstrip("-") in ("NaN", "Infinity"):
            way_out = "write null, or leave the key out, when the value is unknown"
            raise self.fail("not a finite number", position, got=word[0], way_out=way_out)
        digits = _NUMBER.match(self.text, position)
        if digits is None:
            raise self.fail("not valid JSON: expected a value", position)
        try:
            return scalars.number(digits[0]), digits.end()
        except scalars.TooLargeError as problem:
            raise self.fail("the number is too large", position, got=str(problem)) from None

"""A file as nested values that remember their lines, with limits that stop hostile files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from libra_plan.errors import InputError, Where

__all__ = ["MAX_DEPTH", "MAX_VALUES", "Builder", "Mapping", "Node", "Scalar", "Sequence", "flatten"]

MAX_DEPTH = 40
MAX_VALUES = 200_000  # after aliases are counted at their full size, so that alias bombs stop here

ScalarValue: TypeAlias = "str | int | float | bool | None"


@dataclass(slots=True)
class Scalar:
    """One value on one line."""

    value: ScalarValue
    line: int
    size: int = 1
    depth: int = 0


@dataclass(slots=True)
class Sequence:
    """A list of values."""

    line: int
    items: list[Node] = field(default_factory=list)
    size: int = 1
    depth: int = 1


@dataclass(slots=True)
class Mapping:
    """Values by key, each with the line of its key."""

    line: int
    entries: dict[str, tuple[int, Node]] = field(default_factory=dict)
    size: int = 1
    depth: int = 1
    pending: tuple[str, int] | None = None


Node: TypeAlias = "Scalar | Sequence | Mapping"


class Builder:
    """Put the events of a parser together; refuse duplicate keys, odd keys and outsized files."""

    def __init__(self, file: str, error: type[InputError]) -> None:
        self.file = file
        self.error = error
        self.root: Node | None = None
        self._open: list[Sequence | Mapping] = []
        self._values = 0

    @property
    def path(self) -> str:
        """Give the dotted path of the value that is being read."""
        text = ""
        for node in self._open:
            if isinstance(node, Sequence):
                text += f"[{len(node.items)}]"
            elif node.pending is not None:
                text += f".{node.pending[0]}"
        return text.lstrip(".")

    @property
    def wants_key(self) -> bool:
        """Say whether the next scalar is a key of the innermost mapping."""
        return bool(self._open) and isinstance(self._open[-1], Mapping) and self._open[-1].pending is None

    def fail(self, what: str, line: int | None, **parts: str) -> InputError:
        """Make the error for a line of this file."""
        where = Where(self.file, line, self.path or None)
        return self.error(
            what,
            got=parts.get("got"),
            allowed=parts.get("allowed"),
            way_out=parts.get("way_out"),
            where=where,
        )

    def open(self, node: Sequence | Mapping) -> None:
        """Begin a list or a mapping."""
        if self.wants_key:
            raise self.fail("a key must be plain text", node.line, way_out="write `key: value`")
        self._check(node)
        self._open.append(node)

    def close(self) -> Node:
        """End the innermost list or mapping and give it."""
        node = self._open.pop()
        self._attach(node)
        return node

    def key(self, name: object, line: int) -> None:
        """Take a key of the innermost mapping."""
        mapping = self._open[-1]
        assert isinstance(mapping, Mapping)
        if not isinstance(name, str):
            raise self.fail("a key must be text", line, got=repr(name), way_out=f'quote it: "{name}"')
        if name in mapping.entries:
            first = mapping.entries[name][0]
            raise self.fail(
                f"duplicate key `{name}`",
                line,
                got=f"it on line {first} and again on line {line}",
                way_out="keep one of them",
            )
        mapping.pending = (name, line)

    def add(self, node: Node) -> None:
        """Take a finished value: a scalar, or a node seen before (an alias)."""
        self._check(node)
        self._attach(node)

    def _check(self, node: Node) -> None:
        self._values += node.size
        if self._values > MAX_VALUES:
            raise self.fail("the file holds too many values", node.line, allowed=f"{MAX_VALUES}")
        if len(self._open) + node.depth > MAX_DEPTH:
            raise self.fail("the file is nested too deeply", node.line, allowed=f"{MAX_DEPTH} levels")

    def _attach(self, node: Node) -> None:
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        parent.size += node.size
        parent.depth = max(parent.depth, node.depth + 1)
        if isinstance(parent, Sequence):
            parent.items.append(node)
            return
        assert parent.pending is not None
        name, line = parent.pending
        parent.entries[name] = (line, node)
        parent.pending = None


def flatten(node: Node, path: str, lines: dict[str, int]) -> object:
    """Turn a node into plain data and note the line of every key and list item under its path."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        items = []
        for index, item in enumerate(node.items):
            here = f"{path}[{index}]"
            lines[here] = item.line
            items.append(flatten(item, here, lines))
        return items
    result = {}
    for name, (line, value) in node.entries.items():
        here = f"{path}.{name}" if path else name
        lines[here] = line
        result[name] = flatten(value, here, lines)
    return result

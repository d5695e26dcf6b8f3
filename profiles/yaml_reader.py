"""Read YAML 1.2 into nodes, from the parser's events and not by recursion."""

from __future__ import annotations

import yaml

from libra_plan.errors import InputError
from libra_plan.profiles import scalars
from libra_plan.profiles.nodes import Builder, Mapping, Node, Scalar, ScalarValue, Sequence

__all__ = ["read_yaml"]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_CONTAINER_TAGS = {yaml.SequenceStartEvent: f"{_TAG}seq", yaml.MappingStartEvent: f"{_TAG}map"}


def read_yaml(text: str, file: str, error: type[InputError]) -> Node | None:
    """Parse one YAML document; None when the file holds nothing."""
    reader = _Reader(file, error)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = None if mark is None else mark.line + 1
        reason = problem.problem or problem.context or "a broken file"
        raise reader.builder.fail("not valid YAML", line, got=reason) from None
    except yaml.YAMLError as problem:
        raise reader.builder.fail("not valid YAML", None, got=str(problem).splitlines()[0]) from None
    return reader.builder.root


class _Reader:
    def __init__(self, file: str, error: type[InputError]) -> None:
        self.builder = Builder(file, error)
        self._anchors: dict[str, Node] = {}
        self._pending_anchors: list[str | None] = []
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self.builder.fail("a second document begins here", line, allowed="one document a file")
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor or "", line)
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event, line)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._open(event, line)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            self._remember(self._pending_anchors.pop(), self.builder.close())

    def _open(self, event: yaml.SequenceStartEvent | yaml.MappingStartEvent, line: int) -> None:
        if event.tag not in (None, "!", _CONTAINER_TAGS[type(event)]):
            raise self.builder.fail("a tag that is not read here", line, got=event.tag)
        is_list = isinstance(event, yaml.SequenceStartEvent)
        self.builder.open(Sequence(line) if is_list else Mapping(line))
        self._pending_anchors.append(event.anchor)

    def _alias(self, name: str, line: int) -> None:
        node = self._anchors.get(name)
        if node is None:
            raise self.builder.fail(f"alias `*{name}` stands before the end of its anchor `&{name}`", line)
        if self.builder.wants_key:
            raise self.builder.fail("a key must be plain text", line, got=f"*{name}")
        self.builder.add(node)

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        value = self._value(event, line)
        if self.builder.wants_key:
            self.builder.key(value, line)
            return
        node = Scalar(value, line)
        self.builder.add(node)
        self._remember(event.anchor, node)

    def _remember(self, anchor: str | None, node: Node) -> None:
        if anchor is not None:
            self._anchors[anchor] = node

    def _value(self, event: yaml.ScalarEvent, line: int) -> ScalarValue:
        text: str = event.value
        tag = event.tag
        if "\0" in text:
            raise self.builder.fail("a text holds a NUL character, which no path or command can", line)
        if tag in ("!", f"{_TAG}str") or (tag is None and not event.implicit[0]):
            return text
        if tag is not None and tag not in (f"{_TAG}{kind}" for kind in ("int", "float", "bool", "null")):
            raise self.builder.fail("a tag that is not read here", line, got=tag)
        try:
            return scalars.plain(text)
        except scalars.NotFiniteError:
            raise self.builder.fail(
                "not a finite number", line, got=text, way_out="leave the key out when the value is unknown"
            ) from None
        except scalars.TooLargeError as problem:
            raise self.builder.fail("the number is too large", line, got=str(problem)) from None

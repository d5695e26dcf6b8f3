from __future__ import annotations

import pytest

from libra_plan.errors import InputError
from libra_plan.profiles.document import parse_document


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1,}', "key in double quotes"),
        ('{"a" 1}', "expected `:`"),
        ("[1 2]", "expected `,` or `]`"),
        ("[1,]", "expected a value"),
        ('{"a": 01}', "expected `,` or `}`"),
        ('{"a": .5}', "expected a value"),
        ('"a', "text is broken"),
        (r'"\ud800"', "text is broken"),
        (r'{"a": "x\u0000y"}', "NUL character"),
        ('"a\nb"', "text is broken"),
        ("{} {}", "after the end"),
        ("{", "key in double quotes; got the end"),
        ("[" * 100_000, "nested too deeply"),
        ("[" + "1," * 300_000 + "1]", "too many values"),
        ("'a'", "expected a value"),
        ("[True]", "expected a value"),
    ],
)
def test_what_is_not_json_is_refused(text: str, words: str) -> None:
    """The reader is strict: what another program would refuse is refused here first."""
    with pytest.raises(InputError, match=words):
        parse_document(text, "f.json")


def test_lines_are_those_of_the_keys() -> None:
    """Messages about JSON point at lines just as those about YAML do."""
    document = parse_document('{\n "a": [\n  1,\n  {"b": 2}\n ]\n}', "f.json")
    assert document.lines == {"a": 2, "a[0]": 3, "a[1]": 4, "a[1].b": 4}
    with pytest.raises(InputError, match=r"f\.json:3: a\[0\]: not valid JSON"):
        parse_document('{\n "a": [\n  x\n ]\n}', "f.json")

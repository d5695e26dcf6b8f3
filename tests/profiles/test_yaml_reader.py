from __future__ import annotations

import pytest
import yaml

from libra_plan.errors import InputError
from libra_plan.profiles import yaml_reader
from libra_plan.profiles.document import parse_document

CASES = {
    "an alias before its anchor": ("a: *x", "before the end of its anchor"),
    "a value that holds itself": ("a: &a [*a]", "before the end of its anchor"),
    "a second document": ("a: 1\n---\nb: 2", "second document"),
    "a list as key": ("? [a]\n: 2", "key must be plain text"),
    "a number as key": ("1: 2", "key must be text"),
    "an alias as key": ("a: &x b\n*x : 1", "key must be plain text"),
    "a tag that runs code": ("a: !!python/object:os.system x", "tag"),
    "a tagged list": ("a: !!set {b}", "tag"),
    "an open list": ("a: [1, 2", "not valid YAML"),
    "a tab as indent": ("a:\n\tb: 1", "not valid YAML"),
    "a control character": ("a: \x01", "not valid YAML"),
    "a NUL that is written as an escape": ('a: "x\\0y"', "NUL character"),
    "deep nesting": ("[" * 10_000, "nested too deeply|nesting depth"),
    "deep nesting by aliases": (
        "k0: &k0 [1]\n" + "".join(f"k{i}: &k{i} [*k{i - 1}]\n" for i in range(1, 3000)),
        "nested too deeply",
    ),
    "a billion laughs": (
        "a0: &a0 [1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
        "too many values",
    ),
    "a number without end": ("a: " + "9" * 5000, "too large"),
    "a hexadecimal number without end": ("a: 0x" + "f" * 5000, "too large"),
}


@pytest.mark.parametrize("c_loader", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_hostile_yaml_is_refused(case: str, c_loader: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With libyaml or without it, such files end in a message and not in a hang or a traceback."""
    if not c_loader:
        monkeypatch.setattr(yaml_reader, "_LOADER", yaml.SafeLoader)
    text, words = CASES[case]
    with pytest.raises(InputError, match=words):
        parse_document(text, "f.yaml")


def test_aliases_within_the_limits_are_read() -> None:
    """Anchors are useful: one distribution for two tasks."""
    document = parse_document("a: &a {kind: fixed, tokens: 3}\nb: *a\nc: [*a]\n", "f.yaml")
    fixed = {"kind": "fixed", "tokens": 3}
    assert document.data == {"a": fixed, "b": fixed, "c": [fixed]}
    assert document.lines["b.tokens"] == 1, "an aliased key is where its anchor is"


def test_quotes_and_tags_decide_the_kind() -> None:
    """Quoted words are text, and a tag says what a word is."""
    assert parse_document("a: '1'\nb: !!str 1\nc: !!int 1\nd: |\n  1\ne: ~", "f.yaml").data == {
        "a": "1",
        "b": "1",
        "c": 1,
        "d": "1\n",
        "e": None,
    }

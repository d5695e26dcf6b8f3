"""Names and numbers that files may hold."""

import msgspec
import pytest

from libra_plan.profiles.schema_base import Address, File, Name, Weight


@pytest.mark.parametrize("text", ["a", "h200-qwen2.5-7b", "A.b_c-1", "x" * 63])
def test_a_name_that_is_read(text):
    """Names become folders, labels and host names."""
    assert msgspec.convert(text, Name) == text


@pytest.mark.parametrize("text", ["", "-a", "a.", "a b", "a/b", "../a", "a\n", "é", "x" * 64])
def test_a_name_that_is_refused(text):
    """None of them may leave its folder, nor end a line."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(text, Name)


@pytest.mark.parametrize(
    ("text", "right"), [("10.0.0.1", True), ("::1", True), ("fe80::1%eth0", True), ("a;b", False)]
)
def test_an_address_holds_no_command(text, right):
    """Launchers write it into scripts."""
    if right:
        assert msgspec.convert(text, Address) == text
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(text, Address)


@pytest.mark.parametrize("value", [0.0, 1e-7, 1e7, -1.0])
def test_weights_stay_where_sums_are_exact(value):
    """A task of weight 0 would never be placed, and one of 1e30 would hide all others."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(value, Weight)


def test_a_part_of_a_file_refuses_unknown_keys():
    """A mistyped key must not be dropped in silence."""

    class Part(File, frozen=True):
        a: int

    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"a": 1, "b": 2}, Part)

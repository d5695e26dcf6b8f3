from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.profiles.scalars import NotFiniteError, TooLargeError, plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 10**9),
        ("1.5e3", 1500),
        ("2e-5", 2e-5),
        ("1.0", 1.0),
        (".5", 0.5),
        ("-3", -3),
        ("+7", 7),
        ("1_000", "1_000"),
        ("1,000", "1,000"),
        ("2026-11-29", "2026-11-29"),
        ("1.2.3", "1.2.3"),
        ("e9", "e9"),
        ("٣", "٣"),
        ("0x", "0x"),
    ],
)
def test_words_follow_the_core_schema(text: str, value: object) -> None:
    """YAML 1.2.2 section 10.3.2 says which words are numbers; ASCII digits only."""
    result = plain(text)
    assert result == value
    assert type(result) is type(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_float_survives(value: float) -> None:
    """What Python writes for a float is read back as that float."""
    assert plain(repr(value)) == value


@given(st.integers())
def test_integers_are_exact_or_refused(value: int) -> None:
    """An integer beyond 64 bits would turn into a rounded float somewhere later."""
    if abs(value) < 2**63:
        assert plain(str(value)) == value
    else:
        with pytest.raises(TooLargeError):
            plain(str(value))


@pytest.mark.parametrize("text", [".nan", ".NaN", ".inf", "-.Inf", "NaN", "nan", "inf", "-Infinity"])
def test_not_a_number_is_an_error(text: str) -> None:
    """No quantity of ours is NaN or infinite, under any spelling."""
    with pytest.raises(NotFiniteError):
        plain(text)

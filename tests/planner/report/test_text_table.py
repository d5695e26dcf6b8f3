"""Tables as text: nothing is lost, whatever the width."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.planner.report.text_table import Page, table_text

words = st.text("abcdefgh×–", min_size=1, max_size=12)
cells = st.lists(words, max_size=4).map(" ".join)


@st.composite
def tables(draw):
    """Draw a header and rows of as many cells."""
    columns = draw(st.lists(cells, min_size=1, max_size=6))
    return columns, draw(st.lists(st.tuples(*[cells] * len(columns)), max_size=6))


@settings(deadline=None)
@given(tables(), st.integers(10, 120))
def test_every_word_is_shown(table, width):
    """A name that is cut off at 80 columns cannot be looked up."""
    columns, rows = table
    shown = table_text(columns, rows, page=Page(width)).split()
    assert sorted(shown) == sorted(word for row in (columns, *rows) for cell in row for word in cell.split())


@settings(deadline=None)
@given(tables(), st.integers(10, 120))
def test_lines_fit_where_words_allow(table, width):
    """Lines longer than the terminal break the columns, so they occur only where words force them."""
    columns, rows = table
    longest = [
        max(len(word) for cell in column for word in cell.split() or [""])
        for column in zip(columns, *rows, strict=True)
    ]
    if sum(longest) + len(longest) - 1 <= width:
        assert all(len(line) <= width for line in table_text(columns, rows, page=Page(width)).splitlines())


def test_columns_line_up():
    """Numbers are compared by eye: they must stand under each other, to the right."""
    text = table_text(["task", "GPUs"], [["a", "2"], ["long-name", "16"]], right=(1,))
    assert text.splitlines() == ["task       GPUs", "a             2", "long-name    16"]


def test_cells_wrap_between_words():
    """Wrapped cells keep their words whole, and the lines of a row stay together."""
    text = table_text(["task", "pools"], [["a", "rollout + reference"]], page=Page(18))
    assert text.splitlines() == ["task  pools", "a     rollout +", "      reference"]

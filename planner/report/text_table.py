"""Tables as text: cells wrap between words to fit the page, and no word is ever cut off."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass

__all__ = ["PLAIN", "Page", "table_text"]

_GAPS = ("  ", " ")


@dataclass(frozen=True, slots=True)
class Page:
    """The width of a text in characters (None: no limit), and whether headers are bold."""

    width: int | None = None
    bold: bool = False


PLAIN = Page()


def table_text(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    page: Page = PLAIN,
) -> str:
    """Return aligned lines, the header first; `right` numbers the columns aligned to the right.

    On a page too narrow for the longest words the lines get longer than the page.
    """
    gap, widths = _fitting(columns, rows, page.width)
    header = _lines(columns, widths, right, gap)
    body = [line for row in rows for line in _lines(row, widths, right, gap)]
    if page.bold:
        header = [f"\033[1m{line}\033[0m" for line in header]
    return "\n".join([*header, *body])


def _fitting(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None
) -> tuple[str, list[int]]:
    """Return the gap between columns, and their widths: the widest are narrowed first, never below a word."""
    cells = list(zip(columns, *rows, strict=True))
    widths = [max(map(len, column)) for column in cells]
    least = [max(len(word) for cell in column for word in (cell.split() or [""])) for column in cells]
    for gap in _GAPS:
        left = None if width is None else width - len(gap) * (len(columns) - 1)
        if left is not None and sum(least) <= left:
            return gap, _narrowed(widths, least, left)
    return _GAPS[0], widths


def _narrowed(widths: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    narrowed = list(widths)
    while sum(narrowed) > width:
        able = [at for at in range(len(narrowed)) if narrowed[at] > least[at]]
        narrowed[max(able, key=lambda at: narrowed[at])] -= 1
    return narrowed


def _lines(row: Sequence[str], widths: Sequence[int], right: Collection[int], gap: str) -> list[str]:
    wrapped = [
        [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_long_words=False)
        for cell, width in zip(row, widths, strict=True)
    ]
    lines = []
    for number in range(max(map(len, wrapped))):
        parts = [cell[number] if number < len(cell) else "" for cell in wrapped]
        padded = [
            part.rjust(width) if at in right else part.ljust(width)
            for at, (part, width) in enumerate(zip(parts, widths, strict=True))
        ]
        lines.append(gap.join(padded).rstrip())
    return lines

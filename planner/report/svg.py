"""SVG made of rectangles, lines and texts, with attributes escaped and numbers kept short."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from libra_plan.errors import InputError

__all__ = ["COLOURS", "Svg", "check_svg_name"]

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Seven colours that people who do not see all of them can still tell apart (Paul Tol's bright scheme)."""


class Svg:
    """A picture that each call adds one shape to; `text` is the contents of the file."""

    def __init__(self, width: float, height: float) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            'font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
        ]

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        title: str | None = None,
        **style: str | float,
    ) -> None:
        """Draw a rectangle; `title` shows when a pointer rests on it."""
        shape = f'<rect x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" height="{_short(height)}"'
        end = "/>" if title is None else f"><title>{escape(title)}</title></rect>"
        self._parts.append(f"{shape}{_attributes(style)}{end}")

    def words(self, x: float, y: float, text: str, **style: str | float) -> None:
        """Write a text that begins at (x, y), or ends there with `text_anchor="end"`."""
        self._parts.append(f'<text x="{_short(x)}" y="{_short(y)}"{_attributes(style)}>{escape(text)}</text>')

    def line(self, points: Sequence[tuple[float, float]], **style: str | float) -> None:
        """Draw a line through points."""
        through = " ".join(f"{_short(x)},{_short(y)}" for x, y in points)
        self._parts.append(f'<polyline points="{through}" fill="none"{_attributes(style)}/>')

    @property
    def text(self) -> str:
        """The whole picture."""
        return "\n".join([*self._parts, "</svg>\n"])


def check_svg_name(path: Path) -> None:
    """Refuse a file whose name is not that of an SVG."""
    if path.suffix.lower() != ".svg":
        from libra_plan.profiles.document import shown

        raise InputError(
            "pictures (--picture) are SVG, and the file says otherwise",
            got=shown(path),
            allowed="a file that ends in .svg",
            way_out=f"name it {shown(path.with_suffix('.svg')) if path.name else 'plan.svg'}",
        )


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _attributes(style: dict[str, str | float]) -> str:
    return "".join(f" {name.replace('_', '-')}={quoteattr(str(value))}" for name, value in style.items())

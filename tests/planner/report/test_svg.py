"""The drawer escapes what others wrote and keeps numbers short."""

from __future__ import annotations

from xml.etree import ElementTree

from libra_plan.planner.report.svg import Svg

SVG = "{http://www.w3.org/2000/svg}"


def test_shapes_come_out_as_they_were_drawn():
    """Pictures are read by other programs, too."""
    svg = Svg(100, 50.5)
    svg.rect(1, 2.25, 3, 4, fill="red", title="a < b")
    svg.words(5, 6, "x & y", text_anchor="end")
    svg.line([(0, 0), (1.04, 2)], stroke_width=0.8)
    root = ElementTree.fromstring(svg.text)
    assert (root.get("width"), root.get("height")) == ("100", "50.5")
    rect = root.findall(f"{SVG}rect")[1]
    assert (rect.get("x"), rect.get("y"), rect.get("fill")) == ("1", "2.2", "red")
    assert rect.find(f"{SVG}title").text == "a < b"
    words = root.find(f"{SVG}text")
    assert (words.text, words.get("text-anchor")) == ("x & y", "end")
    line = root.find(f"{SVG}polyline")
    assert (line.get("points"), line.get("stroke-width"), line.get("fill")) == ("0,0 1,2", "0.8", "none")


def test_quotes_in_attributes_are_escaped():
    """An attribute may hold a name."""
    svg = Svg(1, 1)
    svg.rect(0, 0, 1, 1, fill='"><script>')
    assert ElementTree.fromstring(svg.text).findall(f"{SVG}rect")[1].get("fill") == '"><script>'

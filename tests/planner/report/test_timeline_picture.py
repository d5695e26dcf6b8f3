"""The picture of a recording."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from doctor_cases import card, evidence_of, play, work

from libra_plan.planner.doctor import judge
from libra_plan.planner.report.timeline_picture import timeline_svg

SVG = "{http://www.w3.org/2000/svg}"
HEAT = ("#eef3f8", "#c6d8ea", "#94b8d9", "#5f93c4", "#34689c")


def drawn(*recordings):
    """Draw recordings."""
    evidence = evidence_of(*recordings)
    return ElementTree.fromstring(timeline_svg(judge(evidence)))


def bars(root, colour):
    """Return the bars of a colour."""
    return [each for each in root.iter(f"{SVG}rect") if each.get("fill") == colour]


def width(found):
    """Add up the widths of bars, pixels."""
    return sum(float(each.get("width")) for each in found)


def test_busy_time_is_dark_and_idle_time_is_light():
    """Half of an hour each."""
    root = drawn(play(3600, lambda at_s: [card(utilization_percent=0.0 if at_s < 1800 else 100.0)]))
    assert width(bars(root, HEAT[0])) == pytest.approx(430, abs=6)
    assert width(bars(root, HEAT[-1])) == pytest.approx(430, abs=6)


def test_what_is_unknown_is_neither():
    """A white lane, and no line of memory."""
    root = drawn(play(3600, lambda at_s: [card(utilization_percent=None, memory_used_mib=None)]))
    assert [bars(root, colour) for colour in HEAT] == [[]] * 5
    assert list(root.iter(f"{SVG}polyline")) == []


def test_a_short_recording_has_no_holes_between_its_windows():
    """Windows are wider than a pixel's share of time."""
    root = drawn(play(60))
    assert width(bars(root, HEAT[-1])) > 700


@pytest.mark.parametrize("seconds", [0, 5])
def test_a_recording_without_length_can_be_drawn(seconds):
    """Nothing is divided by it."""
    assert drawn(play(seconds)).get("width")


def test_lanes_beyond_the_most_are_counted():
    """A picture of a thousand GPUs is no picture."""
    root = drawn(play(60, lambda at_s: [card(index) for index in range(70)]))
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert texts[-1].endswith("and 6 more GPUs")


def test_roles_and_names_are_drawn_whatever_they_hold():
    """A task may be called anything."""
    root = drawn(play(600), work("actor", 600, task="a<b&c", waiting_s=0.0))
    assert "a<b&c/actor" in [each.text for each in root.iter(f"{SVG}text")]

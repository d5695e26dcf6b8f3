"""The picture of a plan: every GPU a lane, every stage a bar."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from plans import cluster as cluster_of
from plans import plan_of, problem_of, role, running
from shipped_plan import shipped_plan

from libra_plan.errors import InputError
from libra_plan.planner.report.plan_picture import plan_svg
from libra_plan.planner.report.svg import COLOURS

SVG = "{http://www.w3.org/2000/svg}"


def drawn(plan, problem=None):
    """Draw and parse."""
    return ElementTree.fromstring(plan_svg(problem or plan.known_problem, plan))


def test_each_gpu_has_a_lane_and_each_task_its_colour():
    """The picture is read beside the table, so names must be the same."""
    plan = shipped_plan()
    root = drawn(plan)
    words = [each.text for each in root.iter(f"{SVG}text")]
    assert [f"node0:{at}" for at in range(8)] == [
        word for word in words if word and word.startswith("node0:")
    ]
    for at, task in enumerate(plan.running):
        bars = [each for each in root.iter(f"{SVG}rect") if each.get("fill") == COLOURS[at]]
        assert len(bars) > len(task.gpus)
        assert any(word and word.startswith(f"{task.task}: step") for word in words)


def test_bars_stay_within_their_lane():
    """A bar that runs out of the picture would promise work after the step."""
    for bar in drawn(shipped_plan()).iter(f"{SVG}rect"):
        if bar.get("fill") in COLOURS:
            assert float(bar.get("x")) + float(bar.get("width")) <= 96 + 860 + 12


def test_lanes_beyond_the_most_are_counted():
    """A picture of a thousand GPUs is none."""
    placed = [running("a", [role("actor", [["n0:0"]])])]
    root = drawn(plan_of(placed), problem_of(cluster_of(*[8] * 10), placed))
    assert "and 16 more GPUs" in [each.text for each in root.iter(f"{SVG}text")]


def test_a_plan_draws_itself_as_svg_only(tmp_path):
    """A file that ends in .png would hold something else than its name says."""
    shipped_plan().draw(tmp_path / "plan.svg")
    assert (tmp_path / "plan.svg").read_text(encoding="utf-8").startswith("<svg")
    with pytest.raises(InputError, match=r"plan\.svg"):
        shipped_plan().draw(tmp_path / "plan.png")

"""Notebooks show a plan as HTML: complete, and safe whatever a task is called."""

from __future__ import annotations

from xml.etree import ElementTree

from plans import cluster as cluster_of
from plans import plan_of, problem_of, role, running
from shipped_plan import shipped_plan

from libra_plan.planner.plan import QueuedTask
from libra_plan.planner.report.plan_html import plan_html


def test_the_tables_hold_what_the_text_holds():
    """A notebook must not show less than the terminal."""
    plan = shipped_plan()
    root = ElementTree.fromstring(plan._repr_html_())
    cells = {cell.text for cell in root.iter("td")}
    assert {"agent-7b", "reward-model", "node0:2-5", "0.676"} <= cells
    assert any("no plan exceeds" in (line.text or "") for line in root.iter("p"))
    assert root.find("{http://www.w3.org/2000/svg}svg") is not None


def test_names_cannot_break_the_page():
    """Task names come from files of others."""
    placed = [running("<b>&", [role("actor", [["n0:0"]])])]
    plan = plan_of(placed, [QueuedTask("x", "worth", "x < y")])
    root = ElementTree.fromstring(plan_html(problem_of(cluster_of(1), placed), plan))
    assert "<b>&" in {cell.text for cell in root.iter("td")}
    assert [item.text for item in root.iter("li")] == ["[worth] x < y"]

"""docs/evaluation.md must say what the committed results say, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]


def load():
    spec = importlib.util.spec_from_file_location("evaluation", ROOT / "benchmarks" / "evaluation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


evaluation = load()


def test_the_page_and_its_picture_are_what_the_results_make():
    """A figure changed by hand, or results without their page, must not pass."""
    runs, ratios = evaluation.read(evaluation.RESULTS)
    assert runs
    docs = ROOT / "docs"
    assert (docs / "evaluation.md").read_text(encoding="utf-8") == evaluation.page(runs, ratios)
    assert (docs / "evaluation.svg").read_text(encoding="utf-8") == evaluation.picture(ratios)


def test_the_picture_has_a_dot_for_every_ratio():
    """A row that was left out would flatter whoever draws it."""
    _, ratios = evaluation.read(evaluation.RESULTS)
    root = ElementTree.fromstring(evaluation.picture(ratios))
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == len(ratios)

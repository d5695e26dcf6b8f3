"""Pictures show what was counted, in both forms, and can be read on white and on black."""

import re
import sys

import pytest
from sim_worlds import DECODE, TRAIN, FixedPlacement, hold, make_task, make_world

from libra_plan.errors import InputError
from libra_plan.planner.report.run_pictures import (
    draw_allocation,
    draw_gain,
    draw_utilization,
    ready_folder,
)
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.figures import PairedRatio
from libra_plan.planner.simulate.world import Costs

RATIOS = [
    PairedRatio("small", "ours", "best-static", 4, 1.21, 1.1, 1.33),
    PairedRatio("small", "equal", "best-static", 4, 0.8, 0.01, 60.0),
    PairedRatio("other", "ours", "best-static", 1, 1.0, None, None),
]


@pytest.fixture(autouse=True)
def _drawn():
    pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def record():
    """Run a small world, stages kept."""
    world = make_world(make_task(costs=Costs(decode=(DECODE,), train=TRAIN)), gpus=4, hours=0.2, look_s=60.0)
    placed = hold(world, "rl", rollout=[1, 1], train=[1])
    return run_world(world, FixedPlacement(placed), 0, keep_stages=True)


def words(path):
    """List the texts of an SVG."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # old matplotlib, new pyparsing
def test_pictures_over_time_have_units_legends_and_both_forms(record, tmp_path):
    """Who reads the picture alone must know what, of whom, in which unit."""
    for paths, what in (
        (draw_allocation([record], tmp_path), "GPUs held"),
        (draw_utilization([record], 60.0, tmp_path), "GPUs at work"),
    ):
        svg, png = paths
        assert {what, "rl: rollout", "rl: train", "hours of small, seed 0", "fixed"} <= set(words(svg))
        assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_gain_names_worlds_policies_and_ratios(tmp_path):
    """A dot without its number cannot be checked; an interval of two seeds must not blow the axis up."""
    svg, _ = draw_gain(RATIOS, tmp_path / "gain")
    said = words(svg)
    assert {"small", "other", "ours", "equal", "1.210", "0.800"} <= set(said)
    assert any("95 % intervals over 1 to 4 paired seeds" in text for text in said)
    assert "60" not in said


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_ground_is_clear_and_the_same_runs_give_the_same_bytes(record, tmp_path):
    """A white box blinds on a dark page, and a date would change a committed picture for nothing."""
    svg, _ = draw_allocation([record], tmp_path)
    first = svg.read_text(encoding="utf-8")
    assert "fill: #ffffff" not in first
    assert "fill: #7b7b80" in first
    draw_allocation([record], tmp_path)
    assert svg.read_text(encoding="utf-8") == first


def test_without_matplotlib_the_extra_is_named(monkeypatch, tmp_path):
    """A user must not meet an ImportError after an hour of simulating."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install '\.\[plot\]' from a checkout"):
        ready_folder(tmp_path)

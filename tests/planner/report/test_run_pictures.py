"""Pictures show what was counted, and say what of whom in which unit."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from sim_worlds import DECODE, TRAIN, FixedPlacement, hold, make_task, make_world

from libra_plan.planner.report.run_pictures import draw_runs, gain_svg, held_svg, used_svg
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.figures import PairedRatio
from libra_plan.planner.simulate.record import bins, held
from libra_plan.planner.simulate.simulate import Simulation
from libra_plan.planner.simulate.world import Costs, Failures

RATIOS = [
    PairedRatio("small", "ours", "best-static", 4, 1.21, 1.1, 1.33),
    PairedRatio("small", "equal", "best-static", 4, 0.8, 0.01, 60.0),
    PairedRatio("other", "ours", "best-static", 1, 1.0, None, None),
]
SVG = "{http://www.w3.org/2000/svg}"


def run(**more):
    """Run a small world, stages kept."""
    given = {"gpus": 4, "hours": 0.2, "look_s": 60.0, **more}
    world = make_world(make_task(costs=Costs(decode=(DECODE,), train=TRAIN)), **given)
    placed = hold(world, "rl", rollout=[1, 1], train=[1])
    return run_world(world, FixedPlacement(placed), 0, keep_stages=True)


@pytest.fixture(scope="module")
def record():
    """Run it once for all tests."""
    return run()


def words(text):
    """List the texts of an SVG."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", text)


def test_pictures_over_time_have_units_and_legends(record):
    """Who reads the picture alone must know what, of whom, in which unit."""
    for text, what in ((held_svg([record]), "GPUs held"), (used_svg([record], 60.0), "GPUs at work")):
        assert {what, "rl: rollout", "rl: train", "hours of small, seed 0", "fixed"} <= set(words(text))


def test_the_area_of_a_band_is_the_gpu_time_that_was_held(record):
    """A picture that is drawn to another scale than its axis would lie about who held what."""
    root = ElementTree.fromstring(held_svg([record]))
    shapes = [each for each in root.iter(f"{SVG}rect") if float(each.get("x", 0)) == 60.0]
    heights = sorted(float(each.get("height")) for each in shapes)
    assert heights == pytest.approx([110.0 / 4, 110.0 * 2 / 4], abs=0.1)
    edges = bins(record, 60.0)
    gpus = {band.part: float(np.mean(band.gpus)) for band in held(record, edges)}
    assert gpus == pytest.approx({"train": 1.0, "rollout": 2.0})


def test_failures_are_marked_where_they_happened():
    """A gap in a band must have its reason in the picture."""
    record = run(failures=Failures(mtbf_hours=0.5, repair_median_s=60.0), hours=1.0)
    assert record.failures
    assert "a GPU failed" in words(held_svg([record]))


def test_the_gain_names_worlds_policies_and_ratios():
    """A dot without its number cannot be checked; an interval of two seeds must not blow the axis up."""
    text = gain_svg(RATIOS)
    assert {"small", "other", "ours", "equal", "1.210", "0.800"} <= set(words(text))
    assert any("95 % intervals over 1 to 4 paired seeds" in said for said in words(text))
    places = [
        float(x) for points in re.findall(r'points="([^"]*)"', text) for x in re.findall(r"([\d.]+),", points)
    ]
    assert max(places) <= 160.0 + 640.0


def test_one_run_alone_has_no_gain(record, tmp_path):
    """With one policy there is nothing to compare, and the other pictures must come all the same."""
    draw_runs(Simulation((), (), (), "best-static", 1, (record,), {"small": 60.0}), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "allocation-small-0.svg",
        "utilization-small-0.svg",
    ]


def test_the_same_runs_give_the_same_bytes(record):
    """A date in it would change a committed picture for nothing."""
    assert held_svg([record]) == held_svg([run()])

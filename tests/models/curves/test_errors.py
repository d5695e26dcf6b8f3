"""Checking a profile against its own points, each left out with its group."""

from __future__ import annotations

import pytest
from fitting import fitted, points_of, shipped

from libra_plan.models.curves.curve import Grouping
from libra_plan.models.curves.errors import check_profile, cross_validate, errors_of
from libra_plan.models.fit import fit_profile
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import load_profile, shipped_folder


@pytest.mark.parametrize(
    ("name", "least_tokens", "median", "p90"),
    [
        ("0.5b-decode", 0, 0.02, 0.05),
        ("1.5b-decode", 0, 0.02, 0.05),
        ("7b-decode", 0, 0.02, 0.05),
        ("7b-score", 1024, 0.02, 0.06),
        ("7b-train", 2048, 0.02, 0.06),
    ],
)
def test_groups_left_out_are_predicted_within_the_goal(name, least_tokens, median, p90):
    """The accuracy that is promised, on measured data, judged by whole batches or lengths left out."""
    (errors,) = cross_validate(shipped(name), keep=lambda s: s.batch * s.length >= least_tokens)
    assert errors.time.median <= median
    assert errors.time.p90 <= p90
    assert errors.memory.median <= 0.015
    assert errors.memory.p90 <= 0.06


def test_bounds_hold_as_often_as_they_say_over_the_shipped_profiles():
    """Memory bounds are planned with: at least 95 % of unseen points must lie under them."""
    names = [f"{size}-{phase}" for size in ("0.5b", "1.5b", "7b") for phase in ("decode", "score", "train")]
    fits = [fit for name in names for fit in shipped(name).fits]
    assert errors_of([fit.memory for fit in fits], one_sided=True).covered >= 0.95
    assert errors_of([fit.time for fit in fits]).covered >= 0.90


def test_groups_are_left_out_whole():
    """An error of a point whose neighbours of the same batch stayed in the fit would flatter."""
    curve = shipped("7b-decode").fits[0].time
    for row in curve.held_out:
        sample = curve.samples[row.sample]
        part = sample.batch if row.grouping is Grouping.BATCH else sample.length
        assert row.group == f"{part:g}"
    assert {row.grouping for row in curve.held_out} == {Grouping.BATCH, Grouping.LENGTH}


def test_what_was_not_fitted_has_no_errors():
    """Unknown is None, never a perfect zero."""
    (errors,) = cross_validate(fitted(points=points_of(memory=None)))
    assert errors.memory is None
    assert errors.time.points > 0


def test_launch_bound_steps_do_not_widen_the_bounds_of_busy_ones():
    """Small steps of a 1.5B model vary by tens of percent, its full ones by one; a plan runs the latter."""
    model = shipped("1.5b-train")
    small, full = model.time_s(Query(1, 1500)), model.time_s(Query(3, 4096))
    assert full.high / full.value < 1.05 < small.high / small.value


def _checked(name):
    loaded = load_profile(shipped_folder() / name)
    return loaded, check_profile(loaded, fit_profile(loaded.file, loaded.points))


def test_worst_points_are_named_by_their_line():
    """The point to look at is found by file and line, also below rows that were set aside."""
    loaded, check = _checked("h200-qwen2.5-1.5b-score")
    assert loaded.set_aside
    lines = (loaded.path / "points.csv").read_text().splitlines()
    header = lines[0].split(",")
    for point in check.left_out:
        path, _, line = point.where.rpartition(":")
        assert path.endswith("h200-qwen2.5-1.5b-score/points.csv")
        row = dict(zip(header, lines[int(line) - 1].split(","), strict=True))
        assert (float(row["batch_sequences"]), float(row["seq_len_tokens"])) == (point.batch, point.length)
        column = "time_s" if point.quantity == "time_s" else "peak_reserved_mib"
        assert float(row[column]) == point.measured


def test_each_point_is_listed_once_worst_first():
    """A point is left out with its batch and with its length; only its worse error counts."""
    _, check = _checked("h200-qwen2.5-7b-decode")
    assert len({(point.where, point.quantity) for point in check.left_out}) == len(check.left_out)
    errors = [abs(point.error) for point in check.left_out]
    assert errors == sorted(errors, reverse=True)
    (layout,) = check.layouts
    assert layout.time.largest == pytest.approx(
        max(abs(p.error) for p in check.left_out if p.quantity == "time_s")
    )

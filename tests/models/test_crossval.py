import pytest
from fitting import fitted, points_of, shipped

from libra_plan.models.curves.curve import Grouping
from libra_plan.models.curves.errors import cross_validate, errors_of
from libra_plan.models.query import Query


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

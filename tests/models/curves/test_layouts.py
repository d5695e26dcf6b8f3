"""From rows of a profile to samples and fits of each layout."""

import pytest
from affine_profile import profile_file
from fitting import points_of

from libra_plan.models.curves.layouts import (
    fit_layout,
    memory_samples,
    place_of,
    rows_by_layout,
    time_samples,
    why_no_curve,
)
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query
from libra_plan.profiles.schema import Point

TRAIN = profile_file("train")


def point(**fields):
    return Point(**{"batch_sequences": 2, "seq_len_tokens": 1024, "time_s": 1.0} | fields)


def test_serving_places_have_a_prompt_and_an_output_and_others_one_length():
    """A point without its lengths has no place, and a query likewise."""
    assert place_of("decode", Query(4, 1024)) == (4.0, 1024.0, 1.0)
    assert place_of("serve", Query(4, None, 512, 128)) == (4.0, 512.0, 128.0)
    assert place_of("serve", Query(4, 1024)) is None
    assert place_of("train", point(seq_len_tokens=None)) is None


def test_rows_of_a_layout_are_those_of_the_ranks_that_most_have():
    """Ranks change a training step: other numbers of them are kept apart."""
    points = [point(), point(seq_len_tokens=2048), point(dp=2), point(tp=2), point(seq_len_tokens=None)]
    one, two = rows_by_layout(TRAIN, points)
    assert (one.layout, one.base_dp, len(one.base), len(one.others)) == (Layout(), 1, 2, 1)
    assert (two.layout, two.base_dp, len(two.base)) == (Layout(tp=2), 1, 1)
    assert [row.name for row in one.base] == [f"{TRAIN.id}/{TRAIN.points}:{line}" for line in (2, 3)]
    (scoring, _) = rows_by_layout(profile_file("score"), points)
    assert len(scoring.base) == 3  # forward passes of ranks do not wait for each other


def test_times_of_a_place_become_their_median_between_the_extremes():
    """One place has one answer, whose spread says how sure it is."""
    points = [point(time_s=1.0, time_low_s=0.9), point(time_s=1.2), point(time_s=1.1, time_high_s=1.5)]
    (rows,) = rows_by_layout(TRAIN, points)
    (sample,) = time_samples(rows.base)
    assert (sample.value, sample.low, sample.high) == (1.1, 0.9, 1.5)
    assert len(sample.rows) == 3


def test_memory_is_of_one_column_the_most_telling_that_any_row_has():
    """Columns differ by up to 80 %: a mix of them would be no law."""
    points = [
        point(peak_allocated_mib=100.0, device_used_mib=300.0),
        point(seq_len_tokens=2048, peak_allocated_mib=200.0),
        point(seq_len_tokens=4096, status="oom", peak_reserved_mib=900.0, time_s=None),
    ]
    (rows,) = rows_by_layout(TRAIN, points)
    samples, column = memory_samples(rows.base)
    assert column == "device_used_mib"
    assert [sample.value for sample in samples] == [300.0]
    assert memory_samples(()) == ([], None)


def test_a_layout_says_why_it_has_no_curve():
    """Five places are too few for a form and its error."""
    few = points_of(grid=[(1, 512 * 2**n) for n in range(5)], memory=None)
    (rows,) = rows_by_layout(profile_file("decode"), few)
    fit = fit_layout("decode", rows)
    assert fit.time is None
    assert fit.coefficients is None
    assert why_no_curve(fit, "time") == "5 places with a time, a fit needs 6"
    assert why_no_curve(fit, "memory") == "no memory measured"


@pytest.mark.parametrize("phase", ["decode", "score"])
def test_only_generation_has_an_affine_step(phase):
    """Passes over whole sequences are asked as they are."""
    (rows,) = rows_by_layout(profile_file(phase), points_of())
    fit = fit_layout(phase, rows)
    assert fit.time is not None
    assert (fit.coefficients is None) == (phase == "score")

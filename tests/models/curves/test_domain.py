import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.models.curves import domain


def hull_of(places):
    return domain.hull_of(np.array(places, dtype=float))


def contains(hull, place):
    return bool(hull.contains(np.array([place], dtype=float))[0])


def step_back(hull, place):
    """Octaves back along one axis, and the place there."""
    octaves, places = hull.step_back(np.array([place], dtype=float))
    return float(octaves[0]), tuple(places[0].tolist())


def clamp(hull, place):
    return tuple(hull.clamp(np.array([place], dtype=float))[0].tolist())


COORDINATE = st.floats(-10, 20).map(lambda value: round(value, 3))
PLACES = st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=12)


@given(PLACES)
def test_every_measured_place_is_inside(places):
    """A measured place outside its own domain would be refused."""
    hull = hull_of(places)
    assert all(contains(hull, place) for place in places)
    assert all(step_back(hull, place)[0] == 0 for place in places)


@given(PLACES, st.floats(0, 1))
def test_places_between_two_measured_ones_are_inside(places, share):
    """The hull is convex: interpolation between points is never refused."""
    (x0, y0), (x1, y1) = places[0], places[-1]
    between = (x0 + share * (x1 - x0), y0 + share * (y1 - y0))
    assert step_back(hull_of(places), between)[0] < 1e-6


@given(PLACES, st.tuples(COORDINATE, COORDINATE))
def test_stepping_back_ends_inside_along_one_axis(places, asked):
    """The distance that decides about refusal is along one axis, to a place that is inside."""
    hull = hull_of(places)
    octaves, place = step_back(hull, asked)
    if octaves < np.inf:
        moved = np.abs(np.subtract(place, asked))
        assert moved.min() == 0.0
        assert contains(hull, place)
        assert moved.max() == pytest.approx(octaves, abs=1e-6)
    assert contains(hull, clamp(hull, asked)) or step_back(hull, clamp(hull, asked))[0] < 1e-6


def test_a_corner_off_on_both_axes_has_no_way_back():
    """Half an octave off on both axes is not half an octave off on one."""
    square = hull_of([(0, 0), (2, 0), (0, 2), (2, 2)])
    assert step_back(square, (2.5, 2.5))[0] == np.inf
    assert step_back(square, (2.5, 1))[0] == 0.5
    assert clamp(square, (2.5, 2.5)) == (2, 2)


def test_the_hull_of_a_triangle_cuts_the_corner():
    """Score profiles measure batch 1 at all lengths and all batches at one number of tokens."""
    triangle = hull_of([(0, 9), (5, 9), (0, 14)])
    assert contains(triangle, (2, 11))
    assert not contains(triangle, (4, 13))
    assert [float(end[0]) for end in triangle.span(np.array([11.0]), 1)] == [0, 3]


def above(hull, place):
    return float(hull.above(np.array([place], dtype=float))[0])


@given(PLACES, st.tuples(COORDINATE, COORDINATE), st.floats(0, 5), st.floats(0, 5))
def test_what_is_above_the_hull_never_falls_as_a_place_grows(places, asked, wider, longer):
    """Margins of memory follow it: a larger run must not get a smaller one."""
    hull = hull_of(places)
    assert above(hull, asked) <= above(hull, (asked[0] + wider, asked[1] + longer)) + 1e-6


@given(PLACES, st.floats(0, 20), st.floats(0, 20))
def test_nothing_is_above_a_hull_that_holds_something_larger(places, narrower, shorter):
    """A run smaller than one that was measured needs no margin for the unknown."""
    hull = hull_of(places)
    for x, y in places:
        assert above(hull, (x - narrower, y - shorter)) == pytest.approx(0, abs=1e-6)


@given(PLACES, st.tuples(COORDINATE, COORDINATE))
def test_a_place_is_no_further_above_the_hull_than_outside_of_it(places, asked):
    """What one octave leads back to is at most one octave above."""
    hull = hull_of(places)
    assert above(hull, asked) <= step_back(hull, asked)[0] + 1e-6

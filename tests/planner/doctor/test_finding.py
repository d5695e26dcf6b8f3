"""Findings: gains that are bounds, and levels in order."""

from __future__ import annotations

import pytest

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finding import Level, bound_of, duration, finder, finding, unknown
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Spell


@pytest.mark.parametrize(("share", "factor"), [(0.0, 1.0), (-0.1, 1.0), (0.2, 1.25), (0.5, 2.0)])
def test_a_lost_share_bounds_the_gain(share, factor):
    """Time that goes away entirely makes the rest 1 ÷ (1 − share) times as fast."""
    gain = bound_of(share, "waiting")
    assert (gain.kind, gain.factor) == ("bound", pytest.approx(factor))
    assert "if waiting went away entirely" in gain.text


@pytest.mark.parametrize("share", [1.0, 1.2])
def test_a_loss_of_all_time_has_no_bound(share):
    """It would be infinite."""
    assert (bound_of(share, "waiting").kind, bound_of(share, "waiting").factor) == ("unknown", None)


def test_levels_are_in_order():
    """--fail-on compares them."""
    assert [level.rank for level in (Level.NOTE, Level.WARNING, Level.CRITICAL)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h")]
)
def test_durations_are_in_the_unit_that_people_use(seconds, text):
    """7,200 s says less than 2 h."""
    assert duration(seconds) == text


def test_a_finder_puts_its_code_on_what_it_finds():
    """Scripts go by the code."""

    @finder("odd")
    def odd(evidence, limits):
        yield finding(
            Level.NOTE, "title", Spell(1.0, 2.0), "seen", ("cause", "do"), unknown("?"), {"a": 1.0}, task="t"
        )

    (found,) = odd.find(Evidence(), Thresholds())
    assert (found.code, found.cause, found.advice, found.began_s, found.ended_s) == (
        "odd",
        "cause",
        "do",
        1.0,
        2.0,
    )
    assert (found.task, found.role, found.figures) == ("t", None, {"a": 1.0})

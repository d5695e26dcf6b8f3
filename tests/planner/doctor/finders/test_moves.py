"""Tasks that are moved to and fro."""

from __future__ import annotations

import pytest
from doctor_cases import UTC_S, codes, look, only, play

from libra_plan.planner.doctor.tracks import MovedTask


def moves(count, every_s, lost_s=None, action="resize"):
    """MovedTask a task between 4 and 8 GPUs."""
    return [
        MovedTask("t", UTC_S + number * every_s, action, 4 + 4 * (number % 2), 8 - 4 * (number % 2), lost_s)
        for number in range(count)
    ]


def test_a030_four_moves_of_a_task_within_an_hour_are_found():
    """A share of GPUs that flips with the noise of a metric."""
    finding = only(look(play(7200), moves=moves(4, 900.0)))
    assert finding.code == "thrash"
    assert (finding.figures["moves"], finding.figures["undone"]) == (4, 3)
    assert finding.gain.kind == "unknown"


def test_moves_that_cost_a_tenth_of_the_time_are_found_however_few():
    """Two moves of ten minutes in two hours."""
    finding = only(look(play(7200), moves=moves(2, 3600.0, lost_s=600.0)))
    assert finding.figures["lost_share"] == pytest.approx(1 / 6, rel=0.01)
    assert finding.gain.factor == pytest.approx(1.2, rel=0.01)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (moves(3, 900.0), "three may be one re-plan each"),
        (moves(4, 1300.0), "not within an hour"),
        (moves(4, 600.0, action="start"), "starts are no moves"),
        (moves(2, 3600.0, lost_s=100.0), "cheap"),
        (moves(1, 1.0, lost_s=3000.0), "one move is no to and fro"),
        ([], "none at all"),
    ],
)
def test_what_is_nearly_thrash(given, why):
    """Moving is what a planner is for."""
    assert codes(look(play(7200), moves=given)) == [], why


def test_moves_of_another_week_are_not_this_runs():
    """The store is kept for good."""
    old = [MovedTask("t", each.at_s - 7 * 86400, *_rest(each)) for each in moves(6, 60.0)]
    assert codes(look(play(7200), moves=old)) == []


def _rest(move):
    return move.action, move.gpus_before, move.gpus_after, move.lost_s


def test_what_nobody_recorded_is_said_to_be_unseen():
    """No store is not the same as no moves."""
    assert "thrash" in [each.code for each in look(play(600)).unseen]
    assert "thrash" not in [each.code for each in look(play(600), moves=[]).unseen]

"""Runs of windows."""

from __future__ import annotations

import numpy as np

from libra_plan.planner.doctor.tracks import spells


def joined(starts, chosen):
    """Return runs as pairs."""
    found = spells(np.array(starts, dtype=float), np.array(chosen, dtype=bool), 10.0, 10.0)
    return [(each.began_s, each.ended_s) for each in found]


def test_windows_that_follow_one_another_are_one_spell():
    """A pause is as long as all of it."""
    assert joined([0, 10, 20, 30, 40], [1, 1, 0, 1, 1]) == [(0, 20), (30, 50)]


def test_a_gap_ends_a_spell():
    """What nobody saw joins nothing."""
    assert joined([0, 10, 50, 60], [1, 1, 1, 1]) == [(0, 20), (50, 70)]


def test_no_window_is_no_spell():
    """An empty track has none."""
    assert joined([], []) == joined([0, 10], [0, 0]) == []

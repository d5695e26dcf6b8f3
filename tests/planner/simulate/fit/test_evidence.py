"""What is noted of steps, and the interval of a median."""

import numpy as np
import pytest

from libra_plan.planner.simulate.fit.evidence import (
    FitFindings,
    TaskSeen,
    median_with_bounds,
    six_digits,
)


def test_a_step_tells_lengths_only_of_roles_that_see_them():
    """A rollout writes responses, a trainer reads whole sequences, and others tell nothing of lengths."""
    seen = TaskSeen()
    seen.add_step("rollout", 0, 10.0, 6400.0, 64.0, None)
    seen.add_step("trainer", 0, 5.0, 12_800.0, 64.0, (1, 1))
    seen.add_step("reward", 0, 1.0, 12_800.0, 64.0, None)
    seen.add_step("rollout", 1, 10.0, None, 64.0, None)
    assert (seen.responses, seen.samples, seen.wholes) == ([(0, 100.0)], [64.0], [200.0])
    assert {role: len(rows) for role, rows in seen.stages.items()} == {
        "rollout": 2,
        "trainer": 1,
        "reward": 1,
    }


def test_parts_of_one_task_are_joined():
    """Two files of one task are one recording of it; the first names the source."""
    first, second = TaskSeen(source="a"), TaskSeen(source="b", samples=[8.0])
    second.add_step("rollout", 0, 1.0, 80.0, 8.0, None)
    first.join(second)
    assert (first.source, first.samples, len(first.stages["rollout"])) == ("a", [8.0, 8.0], 1)


def test_the_interval_of_a_median_holds_it_nine_times_in_ten():
    """An interval that is narrower than it says makes luck look like knowledge."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        middle, low, high = median_with_bounds(rng.standard_normal(25).tolist())
        assert low <= middle <= high
        held += low <= 0.0 <= high
    assert 0.85 <= held / 400 <= 0.97


def test_too_little_evidence_is_noted_with_what_would_be_enough():
    """The user must read how many more steps to record."""
    found = FitFindings()
    assert found.enough("a.samples", 8, 8, "steps tell theirs")
    assert not found.enough("a.samples", 3, 8, "steps tell theirs")
    assert found.assumed == [("a.samples", "3 steps tell theirs, 8 are the least")]
    found.add("a.x", 2.0, 9, "steps of log", "the median", unit="s", span=(1.0, 3.0))
    assert found.figures[0].text() == "a.x 2 s (1 to 3) from 9 steps of log: the median"
    assert six_digits(1.23456789) == pytest.approx(1.23457, abs=1e-12)

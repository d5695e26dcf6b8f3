"""Pareto fronts: what is kept is as if candidates were compared one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.planner.configurations.pareto import insert, undominated


@pytest.mark.parametrize("measures", [1, 2, 3, 4])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_what_is_kept_is_what_no_earlier_candidate_covers(measures: int, seed: int) -> None:
    """Each number of measures has its own way: none may lose a configuration, nor keep one that is beaten."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, rng.integers(2, 9), (int(rng.integers(1, 80)), measures)).astype(float)
    rows[rows == 1] = np.inf
    kept: list[int] = []
    for i in np.lexsort((np.arange(len(rows)), *rows.T[::-1])).tolist():
        if not any((rows[j] <= rows[i]).all() for j in kept):
            kept.append(i)
    assert undominated(rows).tolist() == kept


def test_of_equals_the_first_stays() -> None:
    """The same problem must give the same configurations, whatever order equals are found in."""
    front: list[tuple[tuple[float, ...], str]] = []
    assert insert(front, (1.0, 2.0), "first")
    assert not insert(front, (1.0, 2.0), "second")
    assert insert(front, (0.0, 2.0), "better")
    assert [item for _, item in front] == ["better"]

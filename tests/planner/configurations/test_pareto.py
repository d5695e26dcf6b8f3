"""Pareto fronts: what is kept is as if candidates were compared one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.planner.configurations.pareto import combinations, pareto_front


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
    assert pareto_front(rows).tolist() == kept


def test_of_equals_the_first_stays() -> None:
    """The same problem must give the same configurations, whatever order equals are found in."""
    rows = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.0, 3.0, 3.0], [0.0, 3.0, 3.0]])
    assert pareto_front(rows).tolist() == [2, 0]


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_many_candidates_are_filtered_as_few_are(seed: int) -> None:
    """Beyond one chunk candidates are filtered in steps, which must lose nothing and keep nothing beaten."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 12, (700, 4)).astype(float)
    front = rows[pareto_front(rows)]
    covers = (front[:, None] <= rows[None]).all(axis=2)
    assert covers.any(axis=0).all()
    assert ((front[:, None] <= front[None]).all(axis=2).sum(axis=0) == 1).all()


@pytest.mark.parametrize("same_needs", [False, True])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_combinations_have_only_candidates_that_nothing_replaces(same_needs: bool, seed: int) -> None:
    """For every number of blocks, each member may give any candidate that no other one there covers."""
    rng = np.random.default_rng(seed)
    members = [
        (rng.integers(1, 5, count), rng.integers(0, 3, (count, 2)).astype(float))
        for count in rng.integers(1, 8, 2).tolist()
    ]
    wanted = set()
    for blocks in range(1, 5):
        fronts = [on_front(needs, measures, blocks, same_needs) for needs, measures in members]
        wanted |= {
            (a, b, blocks)
            for a, b in product(*fronts)
            if max(int(members[0][0][a]), int(members[1][0][b])) == blocks
        }
    picks, needs = combinations(members, same_needs=same_needs)
    found = [(a, b, blocks) for (a, b), blocks in zip(picks.tolist(), needs.tolist(), strict=True)]
    assert len(found) == len(set(found))
    assert set(found) == wanted
    assert needs.tolist() == sorted(needs.tolist())


def on_front(needs, measures, blocks: int, same_needs: bool) -> list[int]:
    """List candidates one by one: fewest blocks first, and those that came before stay among equals."""
    front: list[int] = []
    for i in np.argsort(needs, kind="stable").tolist():
        if needs[i] > blocks or (same_needs and needs[i] != blocks):
            continue
        if not any((measures[j] <= measures[i]).all() for j in front):
            front = [j for j in front if not (measures[i] <= measures[j]).all()] + [i]
    return front


def test_a_candidate_stays_until_a_better_one_fits() -> None:
    """On one block only the slow candidate fits; on two the fast one takes its place for good."""
    slow_or_fast = np.array([1, 2]), np.array([[9.0], [5.0]])
    other = np.array([1, 3]), np.array([[7.0], [4.0]])
    picks, needs = combinations([slow_or_fast, other])
    assert picks.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert needs.tolist() == [1, 2, 3]

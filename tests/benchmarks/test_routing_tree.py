"""The prefix tree: what a node tells, what an unseen one falls back to, and what is kept."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from routing_tree import OutcomeTree

FAILED, WENT = "run/small/failure", "run/small/success"


def learnt(**more):
    """Learn four trajectories of one prompt: two that failed at first are long."""
    tree = OutcomeTree(least_seen=2, **more)
    for first, total in ((FAILED, 9_000.0), (FAILED, 11_000.0), (WENT, 900.0), (WENT, 1_100.0)):
        tree.learn("p", (first, WENT), (total, total - 500.0))
    return tree


def test_the_first_outcome_tells_long_from_short():
    """Routing by outcomes rests on it."""
    tree = learnt()
    assert tree.look("p", (FAILED,)).mean_tokens == 9_500.0
    assert tree.look("p", (WENT,)).mean_tokens == 500.0
    assert tree.look("p", ()).mean_tokens == 5_500.0


def test_an_unseen_state_answers_with_its_parent():
    """The published rule; a node that too few passed counts as unseen."""
    tree = learnt()
    assert tree.look("p", (FAILED, "new")) == tree.look("p", (FAILED,))
    tree.learn("p", ("once", WENT), (7.0, 6.0))
    assert tree.look("p", ("once",)) == tree.look("p", ())


def test_an_unseen_prompt_answers_with_all_or_with_the_same_states_of_others():
    """Of a new prompt the published tree knows only the root; `any_prompt` goes on below it."""
    assert learnt().look("new", (FAILED,)).mean_tokens == 5_500.0
    assert learnt(any_prompt=True).look("new", (FAILED,)).mean_tokens == 9_500.0
    assert OutcomeTree().look("new", ()) is None


@given(st.lists(st.floats(1.0, 1e6), min_size=3, max_size=64))
def test_mean_and_percentile_are_those_of_what_was_seen(values):
    """The rule compares both with bucket bounds: an off-by-one would move requests."""
    tree = OutcomeTree(least_seen=1)
    for value in values:
        tree.learn("p", (), (value,))
    told = tree.look("p", ())
    assert told.mean_tokens == pytest.approx(sum(values) / len(values))
    assert sum(value <= told.p90_tokens for value in values) >= 0.9 * len(values)
    assert sum(value < told.p90_tokens for value in values) < 0.9 * len(values)


def test_old_lengths_are_forgotten():
    """Lengths drift while a policy trains: what is long ago must not outweigh what is now."""
    tree = OutcomeTree(least_seen=1)
    for total in [100.0] * 500 + [900.0] * 64:
        tree.learn("p", (), (total,))
    assert tree.look("p", ()).mean_tokens == 900.0

"""Schedules of many steps side by side are those of each alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.schedule import dealt_rows, decode_steps, makespans_s, slot_steps

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=30)


@given(LENGTHS, st.integers(1, 6))
def test_slots_alone_are_a_case_of_slots_and_tokens(lengths, slots):
    """The faster count must be the same count."""
    roomy = Admission(slots, 1e9)
    assert slot_steps([float(each) for each in lengths], slots) == decode_steps(lengths, lengths, roomy)


@given(LENGTHS, st.integers(1, 5), st.integers(50, 200), st.integers(1, 12))
@settings(max_examples=60)
def test_steps_side_by_side_are_those_of_each_replica(lengths, slots, tokens, replicas):
    """The slowest replica, each scheduled by itself, whichever way the rows are laid out."""
    admission = Admission(slots, float(tokens))
    row = np.array([lengths], dtype=float)
    (found,) = makespans_s(row, row, np.zeros_like(row), 1.0, admission, replicas)
    alone = [lengths[replica::replicas] for replica in range(replicas)]
    assert found == max(decode_steps(own, own, admission) for own in alone if own)


def test_rows_are_dealt_round_robin_and_filled_up_with_nothing():
    """Five trajectories on two replicas: the first takes three."""
    table = dealt_rows(np.array([[1.0, 2.0, 3.0, 4.0, 5.0]]), 2)
    assert table.tolist() == [[[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]]]


def test_work_adds_to_the_replica_that_does_it():
    """Two replicas: the second has the longer response, the first more work."""
    lengths, work = np.array([[10.0, 20.0]]), np.array([[50.0, 1.0]])
    assert makespans_s(lengths, lengths, work, 1.0, Admission(1, 100.0), 2) == pytest.approx([60.0])

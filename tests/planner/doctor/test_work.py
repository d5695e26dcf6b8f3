"""Counts become role tracks."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from doctor_cases import UTC_S, evidence_of, work

from libra_plan.planner.doctor.work import guess_kind


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        ("actor", "actor_train"),
        ("Rollout", "rollout"),
        ("generate", "rollout"),
        ("critic_train", "critic_train"),
        ("critic-train", "critic_train"),
        ("judge", "reward"),
        ("environment", "env"),
        ("old-log-prob", "old_log_prob"),
    ],
)
def test_kinds_are_guessed_from_names_where_no_manifest_tells(role, kind):
    """Trainers' logs have names of their own."""
    assert guess_kind(role) == kind


def test_waiting_is_that_of_all_the_time_and_unknown_where_nobody_told():
    """Half of the time 2 of 10 seconds, half of it 6."""
    windows = chain(
        work("actor", 1200, lambda at_s: {"waiting_s": 2.0 if at_s <= 600 else 6.0}), work("env", 1200)
    )
    actor, env = evidence_of([], windows).roles
    assert actor.waited_share == pytest.approx(0.4)
    assert env.waited_share is None


def test_the_pace_is_that_of_the_process_that_worked_last_and_pauses_are_the_longest():
    """Windows of 10 s, then one of 100 s; of another rank nothing for long."""
    windows = [*work("actor", 300), *work("actor", 600, rank=1, every_s=100.0)]
    ((key, pace),) = evidence_of([], windows).paces
    assert key == ("t", "actor")
    assert pace.last_s == UTC_S + 600
    assert pace.longest_pause_s == 100


def test_windows_that_only_wait_are_no_progress():
    """A counter that goes on telling of waits does not hide a hang."""
    windows = [
        *work("actor", 300),
        *work("actor", 900, lambda at_s: {"tokens": None, "samples": None}, rank=1),
    ]
    ((_, pace),) = evidence_of([], windows).paces
    assert pace.last_s == UTC_S + 300


def test_reserved_memory_is_the_most_of_any_rank_by_stretch():
    """The rank that is fullest ends the run."""
    windows = chain.from_iterable(
        work("actor", 120, rank=rank, peak_reserved_mib=100.0 + rank) for rank in range(2)
    )
    (track,) = evidence_of([], windows).roles
    assert np.nanmax(track.reserved_mib) == 101

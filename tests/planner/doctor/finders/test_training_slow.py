"""A rollout that is held up."""

from __future__ import annotations

from itertools import chain

import pytest
from doctor_cases import codes, look, only, work


def counts(training=0.2, rollout=4.0, length=lambda at_s: 10.0, seconds=2400):
    """Give roles that wait so many seconds of ten, and a buffer."""
    return chain(
        work("actor", seconds, lambda at_s: {"queues": {"experience": length(at_s)}}, waiting_s=training),
        work("rollout", seconds, waiting_s=rollout),
    )


def test_a_rollout_that_waits_for_training_is_found():
    """Samples are made faster than they are taken."""
    finding = only(look([], counts()))
    assert (finding.code, finding.role) == ("training-slow", "actor")
    assert finding.gain.factor == pytest.approx(1 / 0.6)


def test_a_buffer_that_grows_is_found_without_any_waits():
    """The rollout need not wait for there to be too much of it."""
    finding = only(look([], counts(None, None, lambda at_s: 10 + at_s / 10)))
    assert finding.code == "training-slow"
    assert "buffer grew" in finding.evidence
    assert finding.gain.factor == pytest.approx(1.0)  # nothing but staleness is known to be lost


@pytest.mark.parametrize(
    "given",
    [
        {"rollout": 1.9},
        {"training": 3.5, "rollout": 4.0},
        {"rollout": None},
        {"rollout": 0.0, "length": lambda at_s: 100 + at_s / 60},
        {"rollout": 0.0, "length": lambda at_s: 10 + 9 * (at_s % 600) / 600},
    ],
)
def test_what_is_nearly_slow_training(given):
    """Little waiting, waiting on both sides, a buffer that grows by little or goes up and down."""
    assert codes(look([], counts(**given))) == []

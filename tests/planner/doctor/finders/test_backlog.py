"""Queues that do not empty."""

from __future__ import annotations

from itertools import chain

import pytest
from doctor_cases import codes, look, only, work


def counts(name, length, waits=0.0, seconds=2400):
    """Give a queue by time, beside a training role and a rollout that both wait."""
    return chain(
        work("rollout", seconds, lambda at_s: {"queues": {name: length(at_s)}}, waiting_s=0.0),
        work("actor", seconds, waiting_s=waits),
        work("reward", seconds, samples=20.0),
    )


def grows(at_s):
    """Grow by half an item a second."""
    return at_s / 2


def test_a_reward_queue_that_grows_is_found_and_its_gain_bounded():
    """Two are scored a second and half of one is left over."""
    finding = only(look([], counts("reward", grows)))
    assert finding.code == "backlog"
    assert finding.figures["growth_per_s"] == pytest.approx(0.5, rel=0.05)
    assert finding.gain.factor == pytest.approx(1.25, rel=0.02)
    assert "scores slower" in finding.cause


def test_an_environment_queue_that_never_empties_while_training_waits_is_the_cause_and_not_the_rollout():
    """More GPUs for the rollout would not help: it waits for tools."""
    finding = only(look([], counts("env", lambda at_s: 30.0, waits=4.0)))
    assert (finding.code, finding.role) == ("backlog", "env")
    assert finding.gain.factor == pytest.approx(1 / 0.6)


@pytest.mark.parametrize(
    ("name", "length", "waits", "why"),
    [
        ("reward", lambda at_s: 30.0, 0.0, "it stands, and nobody waits"),
        ("reward", lambda at_s: 30.0 + at_s / 300, 0.0, "it grows by little"),
        ("reward", lambda at_s: at_s % 300, 0.0, "it fills and empties"),
        ("experience", lambda at_s: 30.0, 0.0, "the buffer is another matter"),
        ("reward", lambda at_s: 0.0, 0.0, "it is empty"),
    ],
)
def test_what_is_nearly_a_backlog(name, length, waits, why):
    """A queue that holds something does its work."""
    assert codes(look([], counts(name, length, waits))) == [], why


def test_the_gain_is_not_known_where_nobody_counts_what_is_served():
    """No figure is better than a made-up one."""
    finding = only(look([], work("rollout", 2400, lambda at_s: {"queues": {"env": grows(at_s)}})))
    assert finding.gain.kind == "unknown"

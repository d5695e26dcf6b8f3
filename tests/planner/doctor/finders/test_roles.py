"""Roles that wait for one another, and queues that do not empty."""

from __future__ import annotations

from itertools import chain

import pytest
from doctor_cases import card, codes, look, only, placed, play, work


def counts(training=4.0, rollout=0.2, seconds=1200, queues=None, **more):
    """Return a training role and a rollout that wait so many seconds of ten."""
    return chain(
        work("actor", seconds, waiting_s=training, queues=queues or {}),
        work("rollout", seconds, waiting_s=rollout, **more),
    )


def test_a090_training_that_waits_40_percent_of_the_step_gains_two_thirds_at_most():
    """1 ÷ (1 − 0.4) is what is left when all waiting goes, and it is called a bound."""
    finding = only(look([], counts()))
    assert (finding.code, finding.task, finding.role) == ("rollout-slow", "t", "rollout")
    assert finding.gain.kind == "bound"
    assert finding.gain.factor == pytest.approx(1 / 0.6)
    assert finding.figures["training_waiting_share"] == pytest.approx(0.4)
    assert finding.figures["training_takes_samples_per_s"] == pytest.approx(1 / 0.6)
    assert finding.figures["rollout_makes_samples_per_s"] == pytest.approx(1.0)
    assert finding.ended_s - finding.began_s == pytest.approx(1200, abs=120)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"training": 1.9}, "a fifth is the least that is told"),
        ({"training": 4.0, "rollout": 3.5}, "both wait, for somebody else"),
        ({"training": None}, "unknown is not waiting"),
        ({"seconds": 240}, "too short to judge"),
        ({"queues": {"experience": 5.0}}, "a buffer that is never empty starves nobody"),
    ],
)
def test_what_is_nearly_a_slow_rollout(given, why):
    """Advice to move GPUs must be right."""
    assert codes(look([], counts(**given))) == [], why


def test_a_rollout_that_does_not_tell_its_waits_is_named_as_such():
    """That training starves is known all the same."""
    finding = only(look([], counts(rollout=None)))
    assert "does not report its waits" in finding.evidence
    assert "rollout_waiting_share" not in finding.figures


def test_sync_coupling_is_named_where_a_manifest_tells():
    """Then overlapping is the first thing to try."""
    placement = placed({"t": "sync"}, actor=[0], rollout=[1])
    assert "async" in only(look([], counts(), placement=placement)).advice
    placement = placed({"t": "async"}, actor=[0], rollout=[1])
    assert "async" not in only(look([], counts(), placement=placement)).advice


def test_a038_gpus_are_not_added_to_a_rollout_that_uses_one_of_eight():
    """Requests one after the other: seven GPUs have nothing to do, and more would have nothing either."""
    one_of_eight = play(
        1200, lambda at_s: [card(index, utilization_percent=0.0 if index else 90.0) for index in range(8)]
    )
    found = look(one_of_eight, counts(), placement=placed(rollout=range(8)))
    slow = found.findings[0]
    assert codes(found) == ["rollout-slow", "gpus-idle", "long-tail"]
    assert "do not add GPUs" in slow.advice


def buffered(training=0.2, rollout=4.0, length=lambda at_s: 10.0, seconds=2400):
    """Return roles that wait so many seconds of ten, and a buffer."""
    return chain(
        work("actor", seconds, lambda at_s: {"queues": {"experience": length(at_s)}}, waiting_s=training),
        work("rollout", seconds, waiting_s=rollout),
    )


def test_a_rollout_that_waits_for_training_is_found():
    """Samples are made faster than they are taken."""
    finding = only(look([], buffered()))
    assert (finding.code, finding.role) == ("training-slow", "actor")
    assert finding.gain.factor == pytest.approx(1 / 0.6)


def test_a_buffer_that_grows_is_found_without_any_waits():
    """The rollout need not wait for there to be too much of it."""
    finding = only(look([], buffered(None, None, lambda at_s: 10 + at_s / 10)))
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
    assert codes(look([], buffered(**given))) == []


def ranks(*waits, seconds=1200):
    """Return ranks that wait so many seconds of ten."""
    return chain.from_iterable(
        work("scorer", seconds, rank=rank, waiting_s=waited) for rank, waited in enumerate(waits)
    )


def test_a_rank_that_never_waits_while_the_others_do_is_found():
    """It has more to do than its share."""
    finding = only(look([], ranks(4.0, 4.0, 1.0, 4.0)))
    assert finding.code == "ranks-uneven"
    assert "rank 2" in finding.title
    assert finding.gain.factor == pytest.approx(1 / (1 - (0.9 - 0.675)))


@pytest.mark.parametrize(
    ("waits", "why"),
    [
        ((2.0, 2.0, 1.0, 2.0), "a little more is in every batch"),
        ((4.0, 4.0, None, 4.0), "a rank that does not tell its waits is not judged"),
        ((4.0,), "a single rank holds up nobody"),
        ((10.0, 10.0), "none of them works"),
    ],
)
def test_what_is_nearly_uneven(waits, why):
    """Lengths differ from batch to batch."""
    assert codes(look([], ranks(*waits))) == [], why


def test_a_few_minutes_are_too_short_to_judge():
    """One long batch would decide."""
    assert codes(look([], ranks(4.0, 0.0, seconds=240))) == []


def queued(name, length, waits=0.0, seconds=2400):
    """Return a queue by time, beside a training role and a rollout that both wait."""
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
    finding = only(look([], queued("reward", grows)))
    assert finding.code == "backlog"
    assert finding.figures["growth_per_s"] == pytest.approx(0.5, rel=0.05)
    assert finding.gain.factor == pytest.approx(1.25, rel=0.02)
    assert "scores slower" in finding.cause


def test_an_environment_queue_that_never_empties_while_training_waits_is_the_cause_and_not_the_rollout():
    """More GPUs for the rollout would not help: it waits for tools."""
    finding = only(look([], queued("env", lambda at_s: 30.0, waits=4.0)))
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
    assert codes(look([], queued(name, length, waits))) == [], why


def test_the_gain_is_not_known_where_nobody_counts_what_is_served():
    """No figure is better than a made-up one."""
    finding = only(look([], work("rollout", 2400, lambda at_s: {"queues": {"env": grows(at_s)}})))
    assert finding.gain.kind == "unknown"

"""Training that starves."""

from __future__ import annotations

from itertools import chain

import pytest
from doctor_cases import card, codes, look, only, placed, play, work


def counts(training=4.0, rollout=0.2, seconds=1200, queues=None, **more):
    """Give a training role and a rollout that wait so many seconds of ten."""
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
    assert "does not tell its waits" in finding.evidence
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

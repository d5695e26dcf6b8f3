"""A few that work on while the others rest."""

from __future__ import annotations

import pytest
from doctor_cases import card, codes, look, placed, play


def tail(share, working=1, period=400.0):
    """Leave all but a few GPUs idle for a share of every period, for less than a minute on end at least."""
    return lambda at_s: [
        card(index, utilization_percent=0.0 if at_s % period < share * period and index >= working else 95.0)
        for index in range(4)
    ]


def test_a037_a_few_long_responses_that_hold_the_whole_step_are_found():
    """A quarter of the rollout with one GPU of four at work."""
    found = look(play(4000, tail(0.25)), placement=placed(rollout=range(4)))
    assert codes(found) == ["gpus-idle", "long-tail"]
    finding = found.findings[1]
    assert finding.figures["tail_share"] == pytest.approx(0.25, abs=0.03)
    assert finding.gain.factor == pytest.approx(1 / (1 - 0.25 * 0.75), rel=0.05)


@pytest.mark.parametrize(
    ("looker", "holders", "why"),
    [
        (tail(0.1), range(4), "a short tail is in every step"),
        (tail(0.25, working=3), range(4), "most of them work"),
        (tail(0.5, working=0), range(4), "all rest together: they wait for somebody else"),
        (tail(0.25), [0], "one GPU alone has no tail"),
    ],
)
def test_what_is_nearly_a_long_tail(looker, holders, why):
    """Advice not to add GPUs must be right."""
    assert "long-tail" not in codes(look(play(4000, looker), placement=placed(rollout=holders))), why


def test_without_a_manifest_nobody_knows_which_gpus_belong_together():
    """It is said that it was not looked for."""
    found = look(play(4000, tail(0.25)))
    assert "long-tail" not in codes(found)
    assert "long-tail" in [each.code for each in found.unseen]

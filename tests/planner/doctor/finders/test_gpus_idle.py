"""GPUs that rest."""

from __future__ import annotations

import pytest
from doctor_cases import card, codes, look, only, placed, play


def resting(share, period=1000.0, **readings):
    """Rest for a share of every period."""
    return lambda at_s: (
        card(utilization_percent=0.0 if at_s % period < share * period else 95.0, **readings),
    )


def test_a_gpu_that_rests_for_minutes_is_found_with_its_longest_pause():
    """A quarter of the time, four minutes on end: somebody could have had it."""
    finding = only(look(play(4000, resting(0.25))))
    assert finding.code == "gpus-idle"
    assert finding.figures["idle_share"] == pytest.approx(0.25, abs=0.01)
    assert finding.figures["longest_pause_s"] == pytest.approx(250, abs=20)
    assert finding.figures["memory_held_share"] == 1.0
    assert finding.gain.factor == pytest.approx(1 / 0.75, rel=0.02)
    assert finding.gpus == ("node0:0",)


@pytest.mark.parametrize(
    ("seconds", "looker", "why"),
    [
        (4000, resting(0.08), "less than a tenth of the time"),
        (4000, resting(0.4, period=100.0), "never a minute on end"),
        (200, resting(1.0), "too short to judge"),
    ],
)
def test_what_is_nearly_idle(seconds, looker, why):
    """Short pauses between steps are of no use to anybody."""
    assert codes(look(play(seconds, looker))) == [], why


def test_unknown_utilization_is_never_idle():
    """A GPU that cannot be read may be working (A042)."""
    assert codes(look(play(4000, lambda at_s: (card(utilization_percent=None, power_w=None),)))) == []


def test_a_monitor_that_looks_every_half_minute_sees_pauses_too():
    """Its samples are further apart than a window is long."""
    assert only(look(play(4000, resting(0.25), every_s=30.0))).figures["longest_pause_s"] >= 200


def test_time_that_nobody_saw_is_not_idle():
    """A monitor that was off for an hour says nothing of that hour."""
    played = [each for each in play(8000, resting(0.08)) if not 2000 < each.sample.monotonic_s < 6000]
    assert codes(look(played)) == []


def test_what_to_do_depends_on_who_holds_the_memory():
    """GPUs that nobody holds are given away, those of a waiting role are shared."""
    nobody = only(look(play(2000, resting(1.0, memory_used_mib=500.0)), placement=placed(actor=[1])))
    assert "nobody holds them" in nobody.cause
    assert nobody.task is None
    waiting = only(look(play(2000, resting(0.5)), placement=placed(actor=[0])))
    assert (waiting.task, waiting.role) == ("t", "actor")
    assert "in turn" in waiting.advice
    shared = only(look(play(2000, resting(0.5)), placement=placed(actor=[0], rollout=[0])))
    assert "all wait" in shared.cause


def test_memory_that_is_not_known_is_not_said_to_be_held():
    """Nor to be free."""
    finding = only(look(play(2000, resting(0.5, memory_used_mib=None))))
    assert "memory_held_share" not in finding.figures

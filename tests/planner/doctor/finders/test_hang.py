"""Busy GPUs without progress."""

from __future__ import annotations

from itertools import chain

from doctor_cases import card, codes, look, only, placed, play, work


def busy(at_s):
    """Spin at low power."""
    return (card(utilization_percent=100.0, power_w=70.0),)


def test_a049_high_utilization_without_progress_is_a_hang_and_no_work():
    """100 % at 70 W and no token for minutes: the only thing that matters, and critical."""
    finding = only(look(play(1200, busy), work("actor", 600), placement=placed(actor=[0])))
    assert (finding.code, finding.level.value, finding.task) == ("hang", "critical", "t")
    assert finding.figures["quiet_s"] >= 590
    assert "70 W" in finding.evidence
    assert finding.gain.factor is None


def test_a_pause_a_little_shorter_than_three_usual_ones_is_none():
    """Steps of ten minutes are no hang after half an hour less a bit."""
    seconds = 600 * 3
    windows = list(work("actor", seconds, every_s=600.0))
    assert codes(look(play(seconds + 1750), windows, placement=placed(actor=[0]))) == []
    assert codes(look(play(seconds + 1900), windows, placement=placed(actor=[0]))) == ["hang"]


def test_gpus_that_rest_or_are_unknown_do_not_hang():
    """A job that has ended is idle; one that nobody can see is nothing at all."""
    windows = list(work("actor", 600))
    unknown = play(1200, lambda at_s: (card(utilization_percent=None),))
    assert codes(look(unknown, windows, placement=placed(actor=[0]))) == []
    idle = play(1200, lambda at_s: (card(utilization_percent=95.0 if at_s < 600 else 0.0),))
    assert "hang" not in codes(look(idle, windows, placement=placed(actor=[0])))


def test_a_role_that_shares_its_gpus_with_one_at_work_does_not_hang():
    """In a pool that is taken in turn, the actor is quiet while the rollout works."""
    windows = list(chain(work("actor", 600), work("rollout", 1200)))
    assert codes(look(play(1200), windows, placement=placed(actor=[0], rollout=[0]))) == []
    apart = play(1200, lambda at_s: (card(0), card(1)))
    found = look(apart, windows, placement=placed(actor=[0], rollout=[1]))
    assert only(found).gpus == ("node0:0",)


def test_without_a_manifest_the_only_task_that_is_counted_has_the_gpus():
    """Two tasks on unknown GPUs cannot be told apart, so that neither is accused."""
    one = list(work("actor", 600))
    assert codes(look(play(1200), one)) == ["hang"]
    assert codes(look(play(1200), [*one, *work("actor", 1200, task="u")])) == []


def test_counts_of_another_time_are_not_joined():
    """Logs without a wall clock begin at 0: what they do not share is not compared."""
    windows = [
        type(each)(**{**{name: getattr(each, name) for name in each.__struct_fields__}, "utc_s": None})
        for each in work("actor", 600)
    ]
    found = look(play(1200), windows)
    assert codes(found) == []
    assert "hang" in [each.code for each in found.unseen]

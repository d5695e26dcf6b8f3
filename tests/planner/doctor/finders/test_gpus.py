"""GPUs that hang, rest, wait for links, or work on while others have nothing left."""

from __future__ import annotations

from itertools import chain

import pytest
from doctor_cases import card, codes, computer, look, only, placed, play, work


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


def busy_link(share=0.3, utilization=20.0, power=600.0, network=None, **readings):
    """Pass on weights for a share of every 100 s."""
    return {
        "look": lambda at_s: (
            card(utilization_percent=utilization, power_w=power, **readings)
            if at_s % 100 < share * 100
            else card(nvlink_tx_bytes_per_s=0.0),
        ),
        "host": lambda at_s: computer(network_tx_bytes_per_s=network if at_s % 100 < share * 100 else 0.0),
    }


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"network": 5e9}, "weights over the host's network"),
        ({"nvlink_rx_bytes_per_s": 2e11, "utilization": 100.0, "power": 200.0}, "NCCL spins at low power"),
        ({"pcie_tx_bytes_per_s": 4e10}, "states go to the host and back"),
    ],
)
def test_a_busy_link_beside_a_gpu_that_computes_little_is_found(given, why):
    """Three in ten seconds go into it."""
    finding = only(look(play(2000, **busy_link(**given))))
    assert finding.code == "sync-traffic", why
    assert finding.figures["sync_share"] == pytest.approx(0.3, abs=0.02)
    assert finding.gain.factor == pytest.approx(1 / 0.7, rel=0.03)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"network": 5e9, "share": 0.05}, "hardly ever"),
        ({"network": 5e9, "utilization": 95.0}, "it overlaps with work"),
        ({"network": 5e8}, "the link is not busy"),
        ({}, "traffic is not known"),
        ({"network": 5e9, "utilization": None}, "nor is the work"),
    ],
)
def test_what_is_nearly_a_link_that_holds_up(given, why):
    """Traffic alone is what links are for."""
    assert "sync-traffic" not in codes(look(play(2000, **busy_link(**given)))), why


def test_the_cause_is_that_of_the_roles():
    """Training exchanges gradients, a rollout takes weights."""
    for role, word in (("actor", "gradients"), ("rollout", "new weights")):
        found = only(look(play(2000, **busy_link(network=5e9)), placement=placed(**{role: [0]})))
        assert word in found.cause


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

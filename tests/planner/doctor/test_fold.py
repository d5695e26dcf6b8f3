"""Samples become configurations, whatever clocks and nodes do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from doctor_cases import UTC_S, card, computer, play
from telemetry_cases import stamp

from libra_plan.planner.doctor import Thresholds
from libra_plan.planner.doctor.fold import SampleFold
from libra_plan.planner.telemetry.recording import RecordedSample
from libra_plan.planner.telemetry.sample import GpuState, NodeSample


def folded(*recordings):
    """Fold recordings one after the other."""
    fold = SampleFold(Thresholds())
    for each in recordings:
        fold.add_all(each)
    return fold.tracks()


def test_windows_cover_the_time_between_samples_and_means_are_weighted_by_it():
    """The first sample covers no time, each other one the time since the one before."""
    (track,), (host,) = folded(play(60, lambda at_s: (card(utilization_percent=at_s),), every_s=5.0))
    assert track.seconds.sum() == track.known_s.sum() == 60
    assert (track.utilization_percent * track.known_s).sum() == sum(5 * at for at in range(5, 61, 5))
    assert track.idle_s.sum() == 5.0
    assert host.cpu_known_s.sum() == 60
    assert (np.diff(track.start_s) == 10.0).all()
    assert track.start_s[0] <= UTC_S <= track.start_s[0] + 10


def test_a_gap_is_nobodys_time():
    """An hour without samples is not an hour at the last reading."""
    played = [each for each in play(4000) if not 100 < each.sample.monotonic_s < 3900]
    (track,), _ = folded(played)
    assert track.seconds.sum() == 200


def test_a_clock_that_jumps_moves_nothing():
    """Windows are laid by monotonic seconds (A078)."""
    straight = list(play(100))
    jumped = [
        RecordedSample(
            each.run,
            NodeSample(
                node="node0",
                taken_utc=stamp(UTC_S - 3600 * (number > 5) + number * 5.0),
                monotonic_s=each.sample.monotonic_s,
                source="test",
                gpus=each.sample.gpus,
            ),
        )
        for number, each in enumerate(straight)
    ]
    (one,), _ = folded(straight)
    (other,), _ = folded(jumped)
    assert one.start_s.tolist() == other.start_s.tolist()
    assert one.seconds.tolist() == other.seconds.tolist()


def test_what_is_unknown_is_nan_and_no_time():
    """So that it compares false with everything."""
    (track,), (host,) = folded(
        play(
            60,
            lambda at_s: (card(utilization_percent=None, memory_used_mib=None, power_w=None),),
            host=lambda at_s: computer(cpu_percent=None, memory_free_mib=None),
        )
    )
    assert track.known_s.sum() == track.idle_s.sum() == track.traffic_known_s.sum() == 0
    assert np.isnan(track.utilization_percent).all()
    assert np.isnan(track.used_mib).all()
    assert np.isnan(track.power_w).all()
    assert np.isnan(host.cpu_percent).all()
    assert np.isnan(host.memory_free_mib).all()


def test_peaks_and_lows_are_those_of_single_samples():
    """A mean would hide what does not fit."""
    (track,), _ = folded(play(60, lambda at_s: (card(memory_used_mib=9e4 if at_s == 30 else 5e4),)))
    assert track.used_mib.max() == 9e4
    assert track.used_low_mib.max() == 5e4


def test_nodes_are_on_one_axis_and_gpus_in_the_order_of_their_places():
    """Recordings of nodes are read one after the other."""
    gpus, hosts = folded(play(60, node="b"), play(60, lambda at_s: (card(1), card(0)), node="a"))
    assert [each.name for each in gpus] == ["a:0", "a:1", "b:0"]
    assert [each.node for each in hosts] == ["a", "b"]
    assert gpus[0].start_s.tolist() == gpus[2].start_s.tolist()


@pytest.mark.parametrize("state", [GpuState.LATE, GpuState.LOST])
def test_a_gpu_that_does_not_answer_has_time_but_no_readings(state):
    """It is there, and nothing is known of it."""
    lost = lambda at_s: (card(0, state=state, utilization_percent=None, memory_used_mib=None),)  # noqa: E731
    (track,), _ = folded(play(60, lost))
    assert track.seconds.sum() == 60
    assert track.known_s.sum() == 0


def test_tracks_cannot_be_written_to():
    """Finders look, and change nothing."""
    (track,), _ = folded(play(60))
    with pytest.raises(ValueError, match="read-only"):
        track.seconds[0] = math.inf

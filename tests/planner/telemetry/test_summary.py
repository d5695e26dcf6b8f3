"""Windows: right sums, and no sample lost to gaps, clocks or restarts."""

from __future__ import annotations

import math
import statistics

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from telemetry_cases import gpu, held_by, sample, stamp

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.recording import RecordedSample
from libra_plan.planner.telemetry.sample import GpuState, ProcessUse
from libra_plan.planner.telemetry.summary import main_process_memory_by_window, node_windows, summary_of


def played(*samples, run="run"):
    return [RecordedSample(run, each) for each in samples]


def test_mean_peak_and_percentiles_are_those_of_the_known_values():
    """Unknown samples count as nothing, not as idle."""
    values = [None, 10.0, 20.0, None, 60.0]
    (window,) = node_windows(
        played(*(sample(float(at), gpu(0, value)) for at, value in enumerate(values))), 60
    )
    seen = window.gpus[0].readings["utilization_percent"]
    assert (seen.count, seen.mean, seen.peak, seen.low, seen.p50) == (3, 30.0, 60.0, 10.0, 20.0)
    assert (window.samples, window.length_s) == (5, 4.0)


def test_a_reading_that_was_never_known_has_no_summary():
    """A042: a MIG GPU has no utilization; a mean of 0 would call it idle."""
    (window,) = node_windows(played(sample(0.0, gpu(0, None))), 60)
    assert "utilization_percent" not in window.gpus[0].readings
    assert "memory_used_mib" in window.gpus[0].readings


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=200))
def test_percentiles_are_those_of_the_standard_library(values):
    """One definition, linear between neighbours, which others can check."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    seen = summary_of(values)
    for ours, theirs in ((seen.p50, cuts[49]), (seen.p95, cuts[94]), (seen.p99, cuts[98])):
        assert math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-6)
    assert seen.low <= seen.p50 <= seen.p95 <= seen.p99 <= seen.peak
    assert summary_of([3.0]).p99 == 3.0


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=60), st.floats(0.1, 1e4))
def test_every_sample_is_in_exactly_one_window_no_longer_than_asked(gaps, window_s):
    """Whatever the gaps are, nothing is lost and nothing counts twice."""
    at_s, samples = 0.0, []
    for gap in gaps:
        at_s += gap
        samples.append(sample(at_s))
    found = list(node_windows(played(*samples), window_s))
    assert sum(window.samples for window in found) == len(samples)
    assert all(window.length_s <= window_s + 0.001 for window in found)


def test_the_first_samples_after_a_long_gap_survive():
    """A055: after an idle hour the burst that follows must be counted."""
    burst = [sample(float(at)) for at in (0, 1, 3600, 3601, 3602)]
    assert [window.samples for window in node_windows(played(*burst), 120)] == [2, 3]


def test_a_window_without_length_is_refused():
    """No mean is over nothing."""
    for length in (0.0, -1.0, math.nan):
        with pytest.raises(InputError, match="a window needs a length"):
            node_windows([], length)


def test_a_window_of_one_sample_has_no_length_and_still_its_values():
    """One look is a fact, too; nothing may be divided by its length."""
    (window,) = node_windows(played(sample(5.0)), 60)
    assert (window.length_s, window.samples) == (0.0, 1)
    assert window.gpus[0].readings["utilization_percent"].mean == 50.0


def test_a_clock_that_jumps_moves_no_sample():
    """A078: an hour back between two looks is still one second."""
    samples = [sample(0.0), sample(1.0, utc_s=1.7e9 - 3600), sample(2.0)]
    (window,) = node_windows(played(*samples), 60)
    assert (window.length_s, window.samples) == (2.0, 3)


def test_a_restarted_monitor_begins_a_window_of_its_own():
    """After a reboot the monotonic clock starts again; its seconds do not compare."""
    both = played(sample(5000.0), sample(5001.0)) + played(sample(3.0), sample(4.0), run="after the reboot")
    assert [(window.samples, window.length_s) for window in node_windows(both, 1e6)] == [(2, 1.0), (2, 1.0)]


def test_nodes_do_not_mix():
    """A cluster's recording holds many nodes, each with a GPU 0."""
    both = played(sample(0.0, node="a"), sample(0.0, node="b"), sample(1.0, node="a"), sample(1.0, node="b"))
    assert [(each.node, each.samples) for each in node_windows(both, 60)] == [("a", 2), ("b", 2)]


def test_gpus_are_joined_by_uuid_wherever_they_are_listed():
    """A012, A048: indices move when a GPU is lost; the readings stay with the UUID."""
    before = sample(0.0, gpu(0, 10.0), gpu(1, 20.0))
    after = sample(1.0, gpu(1, 40.0))
    (window,) = node_windows(played(before, after), 60)
    means = {each.uuid: each.readings["utilization_percent"].mean for each in window.gpus}
    assert means == {"GPU-0": 10.0, "GPU-1": 30.0}


def test_states_xids_and_faults_are_kept():
    """A summary that hides a lost GPU is worse than none."""
    lost = gpu(0, None, state=GpuState.LOST, xids=(79,))
    (window,) = node_windows(played(sample(0.0), sample(1.0, lost, faults=("clock",))), 60)
    assert window.gpus[0].states == {"ok": 1, "lost": 1}
    assert window.gpus[0].xids == (79,)
    assert window.faults == ("clock",)


def test_a_pid_used_again_is_another_process():
    """Two processes after one another with one pid must not add up to one that held it all."""
    first = ProcessUse(pid=7, name="a", started_utc=stamp(1.0), used_mib=100.0)
    more = ProcessUse(pid=7, name="a", started_utc=stamp(1.0), used_mib=300.0)
    again = ProcessUse(pid=7, name="b", started_utc=stamp(2.0), used_mib=None)
    held = [gpu(0, details=held_by(each)) for each in (first, more, again)]
    (window,) = node_windows(played(*(sample(float(at), each) for at, each in enumerate(held))), 60)
    assert [(each.name, each.peak_used_mib) for each in window.gpus[0].processes] == [
        ("a", 300.0),
        ("b", None),
    ]


def test_ecc_errors_are_what_was_added_though_the_counter_began_anew():
    """A driver that was reloaded counts from 0; what came before it counts still."""
    counts = [5, 7, None, 0, 1]
    held = [gpu(0, details=held_by(ecc_uncorrected=each)) for each in counts]
    (window,) = node_windows(played(*(sample(float(at), each) for at, each in enumerate(held))), 60)
    assert window.gpus[0].ecc_uncorrected == 3
    (window,) = node_windows(played(sample(0.0, held[0])), 60)
    assert window.gpus[0].ecc_uncorrected is None


def test_values_whose_sum_is_beyond_all_numbers_still_have_a_mean():
    """A recording may hold anything, and a summary must not end of it."""
    assert summary_of([1e308, 1e308]).mean == 1e308


def card(own, others):
    """Return a GPU whose memory one process and others hold."""
    processes = [ProcessUse(pid=1, used_mib=own), *(ProcessUse(pid=2, used_mib=each) for each in others)]
    return msgspec.structs.replace(gpu(details=held_by(*processes)), memory_used_mib=own + sum(others))


def test_a_window_has_the_least_room_of_any_gpu_at_any_moment():
    """All ranks run the same batch: the tightest decides."""
    samples = [
        sample(0.0, card(50000.0, [100.0]), card(50000.0, [])),
        sample(30.0, card(50000.0, [40.0]), gpu()),
        sample(70.0, card(50000.0, [7.0])),
    ]
    found = list(main_process_memory_by_window([RecordedSample("run", each) for each in samples], 60.0))
    assert found == [143771.0 - 100.0, 143771.0 - 7.0]

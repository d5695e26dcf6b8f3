"""Adding up windows: ranks once, restarts, clocks of several machines, and sums that stay sums."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import libra_plan as lp
from libra_plan.planner.telemetry.readers import paths_of
from libra_plan.planner.telemetry.throughput import Ledger, imbalances
from libra_plan.planner.telemetry.work_windows import WorkWindow


def window(start_s, end_s, *, source="p0", rank=0, tokens=10.0, **more):
    return WorkWindow(
        start_s=start_s, end_s=end_s, task="t", role="r", source=source, dp_rank=rank, tokens=tokens, **more
    )


def total(windows, every_s=60.0):
    ledger = Ledger(every_s)
    for each in windows:
        ledger.add(each)
    (rate,) = ledger.totals()
    return rate


def test_a053_ranks_that_hold_the_same_samples_count_once():
    """Two tensor-parallel ranks add the same 5 tokens: they are 5, not 10."""
    rate = total([window(0, 1, source="rank0", tokens=5), window(0.1, 1.1, source="rank1", tokens=5)])
    assert (rate.tokens_per_s, rate.duplicates) == (5.0, 1)


def test_data_parallel_ranks_add_up():
    """They work side by side: twice the tokens in the same time, the same steps."""
    rate = total([window(0, 10, source=f"p{rank}", rank=rank, steps=2.0) for rank in range(4)])
    assert (rate.ranks, rate.tokens_per_s, rate.steps_per_s) == (4, 4.0, 0.2)


def test_a_restarted_process_goes_on_with_its_rank():
    """The pause between two processes is not in the time that was recorded."""
    rate = total([window(0, 10), window(10, 20), window(50, 60, source="p1")])
    assert (rate.duplicates, rate.covered_s, rate.tokens_per_s) == (0, 30.0, 1.0)


def test_a_restart_after_the_wall_clock_was_set_back_counts():
    """Processes of one boot share the clock that only goes forward, whatever the wall clock says."""
    before = window(1000, 1010, clock="boot", utc_s=9000.0)
    after = window(1020, 1030, source="p1", clock="boot", utc_s=5000.0)
    rate = total([before, after])
    assert (rate.duplicates, rate.covered_s) == (0, 20.0)


def test_machines_meet_on_the_wall_clock():
    """Clocks that count from each machine's boot have nothing else in common."""
    one = window(100, 110, source="a", clock="boot-a", utc_s=7210.0)
    other = window(9000, 9010, source="b", rank=1, clock="boot-b", utc_s=7210.0)
    rate = total([one, other])
    assert (rate.covered_s, rate.tokens_per_s, rate.start_s) == (10.0, 2.0, 7200.0)


def test_a_window_over_a_border_is_shared_out():
    """A stretch gets the part of a window that lies in it."""
    ledger = Ledger(60.0)
    ledger.add(window(50, 80, tokens=30))
    first, second = ledger.rates()
    assert (first.covered_s, first.tokens_per_s, second.covered_s, second.tokens_per_s) == (10, 1, 20, 1)


def test_waiting_staleness_and_queues_are_joined():
    """Waiting is the mean over ranks, staleness over samples; a queue is as long as it is at the end."""
    ledger = Ledger(60.0)
    ledger.add(
        window(0, 10, waiting_s=5.0, staleness=1.0, samples=30.0, queues={"q": 7.0}, longest={"q": 90.0})
    )
    ledger.add(window(0, 10, source="p1", rank=1, waiting_s=0.0, staleness=3.0, stalest=8.0, samples=10.0))
    ledger.add(window(70, 80, queues={"q": 2.0}, longest={"q": 4.0}))
    (rate,) = ledger.totals()
    (queue,) = rate.queues
    assert (queue.last, queue.longest) == (2.0, 90.0)
    assert (rate.staleness, rate.stalest) == (1.5, 8.0)
    assert rate.idle == pytest.approx(5 / 30)


def test_what_was_not_counted_is_unknown():
    """No count is not a count of 0, and no wait that was timed is not a wait of 0 s."""
    rate = total([window(0, 10)])
    assert (rate.samples_per_s, rate.steps_per_s, rate.idle, rate.staleness) == (None, None, None, None)


def test_every_rank_has_its_own_totals_and_unknown_stays_unknown():
    """A rank that holds the others up can only be seen apart from them."""
    ledger = Ledger(60.0)
    for at in range(0, 120, 10):
        ledger.add(window(at, at + 10, waiting_s=2.0))
        ledger.add(window(at, at + 10, source="p1", rank=1))
    ((_, _, (first, second)),) = ledger.ranks()
    assert (first.dp_rank, first.covered_s, first.waited_s) == (0, 120.0, 24.0)
    assert (second.dp_rank, second.covered_s, second.waited_s) == (1, 120.0, None)


STREAM = st.lists(
    st.tuples(st.floats(0.5, 200.0), st.integers(0, 1000), st.floats(0.0, 2.0)), min_size=1, max_size=20
)


@given(st.lists(STREAM, min_size=1, max_size=4), st.sampled_from([1.0, 7.0, 60.0, 3600.0]))
def test_sums_do_not_depend_on_how_time_is_cut(streams, every_s):
    """All tokens are in some stretch, idle is a share, and the order of processes changes nothing."""
    windows = []
    for rank, stream in enumerate(streams):
        at = 0.0
        for length, tokens, waits in stream:
            waiting_s = min(waits * length, length)
            windows.append(
                window(at, at + length, source=f"p{rank}", rank=rank, tokens=tokens, waiting_s=waiting_s)
            )
            at += length
    ledger = Ledger(every_s)
    for each in windows:
        ledger.add(each)
    counted = sum(rate.tokens_per_s * rate.covered_s for rate in ledger.rates())
    assert counted == pytest.approx(sum(each.tokens for each in windows))
    (forward,) = ledger.totals()
    backward = total(windows[::-1], every_s)
    assert 0.0 <= forward.idle <= 1.0
    assert forward.tokens_per_s == pytest.approx(backward.tokens_per_s)
    assert forward.covered_s == pytest.approx(backward.covered_s)


def steps(tokens, *, steps=4.0, batch=8.0, length=1024.0, start_s=0.0):
    return WorkWindow(
        start_s=start_s,
        end_s=start_s + 10.0,
        task="t",
        role="actor",
        tokens=tokens,
        steps=steps,
        batch_sequences=batch,
        seq_len_tokens=length,
    )


@pytest.mark.parametrize("tokens", [4 * 8 * 1024, 4 * 8 * 1024 * 1.2, 4 * 8, 4 * 8 * 1024 * 0.9])
def test_tokens_that_batch_and_length_imply_are_no_finding(tokens):
    """A pass goes over every token, padded or not; a decoding step writes one per sequence."""
    assert list(imbalances([steps(tokens)])) == []


def test_a053_tokens_counted_by_every_rank_of_a_group_are_found():
    """Twice what batch and length imply, to the token, is no padding."""
    (finding,) = imbalances([steps(2 * 4 * 8 * 1024)])
    assert (finding.code, finding.role) == ("tokens-unbalanced", "actor")
    assert "counted 2 times over" in finding.text


def test_tokens_that_fit_nothing_are_found():
    """Cumulative tokens taken for a step's own grow out of any bound (A054)."""
    (finding,) = imbalances([steps(4 * 8 * 1024 * k) for k in (1, 2, 4, 6)])
    assert "3.25 ×" in finding.text


def test_windows_that_do_not_say_enough_are_not_judged():
    """No batch, no verdict."""
    assert list(imbalances([steps(5.0, batch=None), steps(None)])) == []


def test_amounts_whose_product_is_nothing_are_not_judged():
    """They would be divided by."""
    assert list(imbalances([steps(5.0, steps=1e-300, batch=1e-300, length=1e-300)])) == []


def test_one_recording_needs_no_list(tmp_path, monkeypatch):
    """A string was read letter by letter: `t` does not exist."""
    monkeypatch.chdir(tmp_path)
    counter = lp.counter("telemetry", task="agent", role="actor")
    counter.add(tokens=4096, samples=8)
    counter.close()
    assert lp.throughput("telemetry") == lp.throughput(["telemetry"]) == lp.throughput(Path("telemetry"))
    one, several = lp.diagnose("telemetry"), lp.diagnose(["telemetry"])
    assert one.unseen == several.unseen
    assert one.evidence.has
    assert paths_of("telemetry") == paths_of(Path("telemetry")) == paths_of(iter(["telemetry"]))

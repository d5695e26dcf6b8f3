"""GPU memory that is never used, or that runs out."""

from __future__ import annotations

import random

import pytest
from doctor_cases import TOTAL_MIB, card, codes, look, only, placed, play, work


def using(share, **readings):
    """Work on a share of memory."""
    return lambda at_s: (card(memory_used_mib=share * TOTAL_MIB, **readings),)


def test_a_working_gpu_on_a_third_of_its_memory_is_a_note():
    """Nothing is broken, but batches could be larger."""
    finding = only(look(play(1200, using(0.33))))
    assert (finding.code, finding.level.value) == ("memory-unused", "note")
    assert finding.figures["peak_share"] == pytest.approx(0.33)
    assert finding.gain.kind == "unknown"


def test_what_is_nearly_unused():
    """More than half, one peak above it, a GPU at rest, memory that is mostly unknown."""
    assert codes(look(play(1200, using(0.51)))) == []
    peak = play(1200, lambda at_s: (card(memory_used_mib=(0.8 if at_s == 600 else 0.3) * TOTAL_MIB),))
    assert codes(look(peak)) == []
    assert "memory-unused" not in codes(look(play(1200, using(0.3, utilization_percent=0.0))))
    gaps = play(1200, lambda at_s: (card(memory_used_mib=None if at_s % 50 < 20 else 0.3 * TOTAL_MIB),))
    assert codes(look(gaps)) == []


def growing(share):
    """Use a share of memory that is a function of the second."""
    return lambda at_s: (card(memory_used_mib=share(at_s) * TOTAL_MIB),)


def test_a_peak_that_grows_is_told_before_the_gpu_is_full():
    """From 60 to 80 % in an hour: full in another."""
    finding = only(look(play(3600, growing(lambda at_s: 0.6 + 0.2 * at_s / 3600))))
    assert finding.code == "memory-ahead"
    assert finding.figures["full_in_s"] == pytest.approx(3600, rel=0.1)
    assert finding.gpus == ("node0:0",)


def test_what_stays_between_peaks_counts_when_the_peak_does_not_grow():
    """Residual memory after each phase leaks, and the next peak will not fit."""
    residual = growing(lambda at_s: 0.9 if at_s % 300 < 60 else 0.55 + 0.3 * at_s / 3600)
    finding = only(look(play(3600, residual)))
    assert "what stays" in finding.evidence
    assert finding.level.value == "critical"


def test_what_the_allocator_reserves_counts_too():
    """The counter knows the peak even where the monitor came too late to see it."""
    windows = work("actor", 3600, lambda at_s: {"peak_reserved_mib": (0.6 + 0.2 * at_s / 3600) * TOTAL_MIB})
    found = look(play(3600), windows, placement=placed(actor=[0]))
    assert only(found).role == "actor"
    assert "allocator" in only(found).evidence


def noisy(at_s):
    """Return a level with noise."""
    return 0.8 + 0.05 * random.Random(at_s).random()


@pytest.mark.parametrize(
    ("share", "why"),
    [
        (lambda at_s: min(0.5 + at_s / 1000, 0.85), "a cache fills up once, and stays"),
        (lambda at_s: 0.55 if at_s < 1800 else 0.9, "another phase begins, and stays"),
        (lambda at_s: 0.55 + 0.015 * at_s / 3600, "less than what any run does"),
        (lambda at_s: 0.55 + 0.05 * at_s / 3600, "full only far beyond what was seen"),
        (lambda at_s: 0.9 - 0.3 * at_s / 3600, "it shrinks"),
        (lambda at_s: 0.9 if at_s % 300 < 60 else 0.55, "phases come and go"),
        (noisy, "noise"),
    ],
)
def test_what_nearly_runs_out(share, why):
    """A run that is stopped for a false alarm has lost as much as one that died."""
    assert codes(look(play(3600, growing(share)))) == [], why


def test_unknown_memory_does_not_grow():
    """Nor does it shrink."""
    assert codes(look(play(3600, lambda at_s: (card(memory_used_mib=None),)))) == []


def test_growth_in_a_few_minutes_is_no_trend():
    """A run that starts fills its memory."""
    assert codes(look(play(500, growing(lambda at_s: 0.6 + 0.2 * at_s / 500)))) == []

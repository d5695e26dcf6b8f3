"""Memory that nobody uses."""

from __future__ import annotations

import pytest
from doctor_cases import TOTAL_MIB, card, codes, look, only, play


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

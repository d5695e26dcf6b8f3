"""Host memory that runs out."""

from __future__ import annotations

from doctor_cases import codes, computer, look, only, play


def free(share):
    """Leave a share free, given as a function of the second."""
    return lambda at_s: computer(memory_free_mib=share(at_s) * 1e6, memory_used_mib=(1 - share(at_s)) * 1e6)


def test_a_host_without_free_memory_is_found():
    """The kernel ends processes then."""
    finding = only(look(play(1200, host=free(lambda at_s: 0.03 if at_s > 600 else 0.5))))
    assert (finding.code, finding.level.value) == ("host-memory", "warning")
    assert finding.figures["least_free_share"] == 0.03


def test_memory_that_grows_is_told_before_it_is_full():
    """Half an hour ahead is time to act in."""
    finding = only(look(play(3600, host=free(lambda at_s: 0.9 - 0.6 * at_s / 3600))))
    assert finding.level.value == "critical"
    assert 1200 < finding.figures["full_in_s"] < 2400


def test_what_is_nearly_full():
    """Room enough, growth that ends, growth that is far from full, unknown."""
    assert codes(look(play(1200, host=free(lambda at_s: 0.06)))) == []
    assert codes(look(play(3600, host=free(lambda at_s: max(0.9 - at_s / 1000, 0.3))))) == []
    assert codes(look(play(3600, host=free(lambda at_s: 0.9 - 0.1 * at_s / 3600)))) == []
    for reading in ("memory_free_mib", "memory_total_mib"):
        assert codes(look(play(1200, host=lambda at_s, name=reading: computer(**{name: None})))) == []

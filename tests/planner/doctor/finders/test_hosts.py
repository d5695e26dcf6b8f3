"""Hosts without free cores or memory."""

from __future__ import annotations

import pytest
from doctor_cases import card, codes, computer, look, only, play


def cpu(percent, share=1.0):
    """Load the cores for a share of every ten minutes."""
    return lambda at_s: computer(cpu_percent=percent if at_s % 600 < share * 600 else 20.0)


def gpus(percent):
    """Return a GPU at that utilization."""
    return lambda at_s: (card(utilization_percent=percent),)


def test_cores_that_are_taken_while_gpus_wait_are_found():
    """Environments starve the GPUs of what they need to go on."""
    finding = only(look(play(2400, gpus(40.0), host=cpu(97.0, 0.5))))
    assert (finding.code, finding.node) == ("host-cpu", "node0")
    assert finding.figures["cpu_high_share"] == pytest.approx(0.5, abs=0.02)
    assert finding.gain.factor == pytest.approx(1 / (1 - 0.5 * 0.6), rel=0.02)


@pytest.mark.parametrize(
    ("looker", "host", "why"),
    [
        (gpus(95.0), cpu(97.0), "the GPUs do not mind"),
        (gpus(40.0), cpu(88.0), "there are cores left"),
        (gpus(40.0), cpu(97.0, 0.05), "hardly ever"),
        (gpus(40.0), cpu(None), "unknown is not full"),
    ],
)
def test_what_is_nearly_too_few_cores(looker, host, why):
    """A busy CPU alone is no fault."""
    assert codes(look(play(2400, looker, host=host))) == [], why


def test_gpus_that_are_not_known_make_the_bound_wider_only():
    """That cores are exhausted is known all the same."""
    finding = only(look(play(2400, gpus(None), host=cpu(97.0, 0.5))))
    assert "not known" in finding.evidence
    assert finding.gain.factor == pytest.approx(2.0, rel=0.05)


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

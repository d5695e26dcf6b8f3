"""Links that GPUs wait for."""

from __future__ import annotations

import pytest
from doctor_cases import card, codes, computer, look, only, placed, play


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

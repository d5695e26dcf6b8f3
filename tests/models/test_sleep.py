"""Sleeping roles: seconds and host memory."""

import pytest

from libra_plan.models.pricing.switching import sleep_cost


def test_sleep_moves_the_static_state_over_the_host_link():
    """14.19 GiB of weights take 0.28 s each way at the measured 51.3 GiB/s."""
    cost = sleep_cost(14.19 * 1024, 770.0, 51.3, 51.3)
    assert cost.sleep_s == pytest.approx(14.19 / 51.3)
    assert cost.wake_s == pytest.approx(cost.sleep_s)


def test_host_memory_of_a_sleeping_role_is_its_state():
    """Level-1 sleep copies the whole state to the host: it is a resource to plan with (A026)."""
    assert sleep_cost(78 * 1024, 770.0, 51.3, 51.3).host_mib == 78 * 1024

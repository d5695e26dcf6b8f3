"""Thresholds: each one is described, and they fit one another."""

from __future__ import annotations

from dataclasses import fields

from libra_plan.planner.doctor.settings import Thresholds


def test_every_threshold_is_described():
    """A number without a meaning cannot be judged."""
    text = Thresholds.__doc__ or ""
    told = {each.name for each in fields(Thresholds) if f"`{each.name}`" in text}
    links = {"network_bytes_per_s", "nvlink_bytes_per_s", "pcie_bytes_per_s"}  # described together
    assert {each.name for each in fields(Thresholds)} - told - links == {"queue_growth"} - told
    assert "traffic in bytes/s by link" in text


def test_limits_that_belong_together_are_in_order():
    """Idle below slack below busy; what is soon is before what is ahead."""
    limits = Thresholds()
    assert 0 < limits.idle_percent < limits.slack_percent < limits.busy_percent <= 100
    assert limits.soon_s < limits.ahead_s
    assert limits.window_s <= limits.gap_s <= limits.seen_s
    assert limits.wait_lead <= limits.wait_share

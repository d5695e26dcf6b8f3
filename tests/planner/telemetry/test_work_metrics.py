"""Rates for Prometheus."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from libra_plan.planner.telemetry.throughput import Ledger
from libra_plan.planner.telemetry.work_metrics import work_metrics
from libra_plan.planner.telemetry.work_windows import WorkWindow


def test_the_newest_stretch_of_every_role_is_shown_and_unknowns_are_left_out():
    """A gauge that is not there is unknown; one of 0 would be a stop."""
    ledger = Ledger(60.0)
    for start_s, tokens in ((0.0, 600.0), (60.0, 1200.0)):
        ledger.add(
            WorkWindow(
                start_s=start_s,
                end_s=start_s + 60.0,
                task='a "b"',
                role="r",
                tokens=tokens,
                queues={"q": 3.0},
            )
        )
    text = work_metrics(list(ledger.rates()))
    found = [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert found == [
        ("libra_plan_tokens_per_second", {"task": 'a "b"', "role": "r"}, 20.0),
        ("libra_plan_queue_length", {"task": 'a "b"', "role": "r", "queue": "q"}, 3.0),
    ]

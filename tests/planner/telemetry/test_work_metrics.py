"""Rates for Prometheus."""

from __future__ import annotations

from libra_plan.planner.telemetry.work_metrics import exposition
from libra_plan.planner.telemetry.readers.vllm import samples_of
from libra_plan.planner.telemetry.throughput import Ledger
from libra_plan.planner.telemetry.windows import Window


def test_the_newest_stretch_of_every_role_is_shown_and_unknowns_are_left_out():
    """A gauge that is not there is unknown; one of 0 would be a stop."""
    ledger = Ledger(60.0)
    for start_s, tokens in ((0.0, 600.0), (60.0, 1200.0)):
        ledger.add(
            Window(
                start_s=start_s,
                end_s=start_s + 60.0,
                task='a "b"',
                role="r",
                tokens=tokens,
                queues={"q": 3.0},
            )
        )
    text = exposition(list(ledger.rates()))
    assert list(samples_of(text)) == [
        ("libra_plan_tokens_per_second", {"task": 'a \\"b\\"', "role": "r"}, 20.0),
        ("libra_plan_queue_length", {"task": 'a \\"b\\"', "role": "r", "queue": "q"}, 3.0),
    ]
    assert text.count("# TYPE") == 2

"""Metrics as Prometheus reads them."""

from __future__ import annotations

from urllib.request import urlopen

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from telemetry_cases import gpu, sample

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.exposition import Exposition, parse_address, rates_as_metrics
from libra_plan.planner.telemetry.sample import READINGS, GpuState
from libra_plan.planner.telemetry.throughput import Ledger
from libra_plan.planner.telemetry.work_windows import WorkWindow


@pytest.fixture
def exposition():
    made = Exposition(("127.0.0.1", 0))
    yield made
    made.close()


def scrape(exposition):
    with urlopen(f"http://127.0.0.1:{exposition.port}/metrics", timeout=30) as page:
        text = page.read().decode()
    return [each for family in text_string_to_metric_families(text) for each in family.samples]


def test_what_is_known_is_served_in_base_units_and_what_is_not_is_left_out(exposition):
    """A 0 for an unknown utilization would let an autoscaler take the GPU away."""
    exposition.show([sample(1.0, gpu(0, 50.0), gpu(1, None, state=GpuState.LATE))])
    found = {(each.name, each.labels.get("gpu")): each.value for each in scrape(exposition)}
    assert found["libra_plan_gpu_utilization_ratio", "0"] == 0.5
    assert ("libra_plan_gpu_utilization_ratio", "1") not in found
    assert found["libra_plan_gpu_memory_used_bytes", "0"] == 1000 * 2**20
    assert found["libra_plan_gpu_readable", "0"] == 1
    assert found["libra_plan_gpu_readable", "1"] == 0
    assert found["libra_plan_host_cpu_ratio", None] == 0.1
    assert found["libra_plan_sample_timestamp_seconds", None] == 1.7e9 + 1


def test_every_reading_has_a_metric_of_its_own(exposition):
    """Two readings under one name would be one of them."""
    values = {name: float(place) for place, name in enumerate(READINGS, start=1)}
    exposition.show([sample(1.0, msgspec.structs.replace(gpu(0), **values))])
    found = [each for each in scrape(exposition) if each.labels.get("gpu") == "0"]
    assert len({each.name for each in found}) == len(found) == len(READINGS) + 2


def test_the_newest_sample_of_every_node_is_served(exposition):
    """A cluster's nodes come one after the other."""
    exposition.show([sample(1.0, node="a"), sample(1.0, node="b")])
    exposition.show([sample(2.0, node="a")])
    stamps = {
        each.labels["node"]: each.value
        for each in scrape(exposition)
        if each.name == "libra_plan_sample_timestamp_seconds"
    }
    assert stamps == {"a": 1.7e9 + 2, "b": 1.7e9 + 1}


def test_only_this_machine_can_ask_unless_told_otherwise():
    """Metrics tell who runs what: nobody else gets them by accident."""
    assert parse_address("9401") == ("127.0.0.1", 9401)
    assert parse_address("0.0.0.0:9401") == ("0.0.0.0", 9401)
    assert parse_address("[::1]:9401") == ("::1", 9401)
    for wrong in ("", "x", "host:", "70000", "-1"):
        with pytest.raises(InputError, match="not an address"):
            parse_address(wrong)


def test_a_port_in_use_is_told(exposition):
    """The user must name another one."""
    with pytest.raises(InputError, match="cannot be served there"):
        Exposition(("127.0.0.1", exposition.port))


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
    text = rates_as_metrics(list(ledger.rates()))
    found = [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert found == [
        ("libra_plan_tokens_per_second", {"task": 'a "b"', "role": "r"}, 20.0),
        ("libra_plan_queue_length", {"task": 'a "b"', "role": "r", "queue": "q"}, 3.0),
    ]

"""Made-up GPUs that nobody may take for an excuse to skip a reading."""

from __future__ import annotations

import random

import msgspec
from fake_nvml import Hands
from telemetry_cases import clocks_of

from libra_plan.planner.telemetry.sample import READINGS, NodeSample
from libra_plan.planner.telemetry.simulated import SimulatedSource


def test_the_simulation_says_what_a_real_source_says():
    """What is tried out on it must meet every reading, and memory that adds up."""
    hands = Hands()
    source = SimulatedSource(8, "node0", clocks_of(hands), random.Random(1))
    idle = 0
    for _ in range(90):
        hands.pass_s(1)
        (seen,) = source.read()
        assert msgspec.json.decode(msgspec.json.encode(seen), type=NodeSample) == seen
        for each in seen.gpus:
            assert all(getattr(each, name) is not None for name in READINGS)
            parts = each.memory_used_mib + each.memory_free_mib + each.memory_reserved_mib
            assert abs(parts - each.memory_total_mib) < 0.1
            idle += each.utilization_percent == 0
    assert 0 < idle < 90 * 8
    assert source.live

"""Memory that the main process of a GPU can have."""

from __future__ import annotations

import msgspec
import pytest
from telemetry_cases import gpu, held_by, sample

from libra_plan.planner.telemetry.memory_headroom import room_mib, rooms
from libra_plan.planner.telemetry.reader import Played
from libra_plan.planner.telemetry.sample import GpuState, ProcessUse


def card(own, others, **more):
    details = held_by(ProcessUse(pid=1, used_mib=own), *(ProcessUse(pid=2, used_mib=each) for each in others))
    return msgspec.structs.replace(gpu(details=details), **{"memory_used_mib": own + sum(others)} | more)


def test_what_others_and_the_driver_hold_is_no_room():
    """A colocated engine's memory is not the trainer's."""
    assert room_mib(card(50000.0, [20000.0, 500.0], memory_reserved_mib=271.0)) == 143771.0 - 20500.0 - 271.0


@pytest.mark.parametrize(
    "unknown",
    [
        card(1.0, [], memory_total_mib=None),
        card(1.0, [], memory_used_mib=None),
        card(1.0, [], state=GpuState.LATE),
        gpu(details=held_by()),
        gpu(details=held_by(ProcessUse(pid=1, used_mib=None))),
        gpu(),
    ],
)
def test_what_is_not_known_is_no_room_of_0_and_none_of_all(unknown):
    """A042, A044: neither 0 nor everything."""
    assert room_mib(unknown) is None


def test_a_window_has_the_least_room_of_any_gpu_at_any_moment():
    """All ranks run the same batch: the tightest decides."""
    samples = [
        sample(0.0, card(50000.0, [100.0]), card(50000.0, [])),
        sample(30.0, card(50000.0, [40.0]), gpu()),
        sample(70.0, card(50000.0, [7.0])),
    ]
    found = list(rooms([Played("run", each) for each in samples], 60.0))
    assert found == [143771.0 - 100.0, 143771.0 - 7.0]

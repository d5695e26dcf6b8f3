"""Memory that the main process of a GPU can have."""

from __future__ import annotations

import msgspec
import pytest
from telemetry_cases import gpu, held_by

from libra_plan.planner.telemetry.sample import GpuState, ProcessUse, main_process_memory_mib


def card(own, others, **more):
    details = held_by(ProcessUse(pid=1, used_mib=own), *(ProcessUse(pid=2, used_mib=each) for each in others))
    return msgspec.structs.replace(gpu(details=details), **{"memory_used_mib": own + sum(others)} | more)


def test_what_others_and_the_driver_hold_is_no_room():
    """A colocated engine's memory is not the trainer's."""
    known = card(50000.0, [20000.0, 500.0], memory_reserved_mib=271.0)
    assert main_process_memory_mib(known) == 143771.0 - 20500.0 - 271.0


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
    assert main_process_memory_mib(unknown) is None

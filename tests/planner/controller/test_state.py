"""The state and its bytes: equal for equal values, and those of stores of earlier versions."""

from __future__ import annotations

from libra_plan.planner.controller.state import (
    Clock,
    LoopState,
    Pending,
    RateEstimate,
    TaskClock,
    digest_of,
    from_bytes,
    read_clocks,
    to_bytes,
)
from libra_plan.planner.telemetry.observations import Moment

EMPTY = "sha256:f4ff218aa1a228408c72cc8fe0ac732eee658ed10cc580b5710edec96dd863d7"


def test_bytes_come_back_as_the_same_value() -> None:
    """Floats keep every bit, and equal values are equal bytes."""
    state = LoopState(
        looks=3,
        clock=Clock(0.1 + 0.2, Moment(1.0, 2.0, "boot")),
        tracked=(RateEstimate("a", "train", "", "", 1 / 3, 2.0, 1e-300),),
        clocks=(TaskClock("a", oom_mib=(("train", 5.5),)),),
        pending=(Pending("a", "grow", 2),),
    )
    assert from_bytes(to_bytes(state), LoopState) == state
    assert to_bytes(from_bytes(to_bytes(state), LoopState)) == to_bytes(state)


def test_the_bytes_of_an_empty_state_are_those_of_the_first_version() -> None:
    """A field that is renamed would make every record of users unreadable."""
    assert digest_of(to_bytes(LoopState())) == EMPTY


def test_a_task_that_was_never_seen_has_no_times() -> None:
    """Its clock is empty, not 0."""
    assert LoopState().clock_for("a") == TaskClock("a")
    assert LoopState(clocks=(TaskClock("a", placed_s=4.0),)).clock_for("a").placed_s == 4.0


def test_both_clocks_are_read() -> None:
    """The boot's seconds never go back."""
    first, second = read_clocks(), read_clocks()
    assert first.boot == second.boot
    assert 0.0 < first.boot_s <= second.boot_s
    assert first.wall_s > 1.7e9

"""A file of observations: what is unknown may be left out, and what is misspelled is refused."""

from __future__ import annotations

import msgspec
import pytest

from libra_plan.planner.telemetry.observations import Event, EventKind, Observations, RoleLoad


def test_everything_but_the_time_may_be_left_out_and_is_then_unknown():
    """A script that only knows of a lost GPU need not make up the rest."""
    found = msgspec.convert(
        {"until_s": 1.0, "loads": [{"task": "t", "role": "r"}], "events": [{"kind": "gpu-lost"}]},
        Observations,
    )
    assert found.loads == (RoleLoad("t", "r", None, None, ()),)
    assert found.events == (Event(EventKind.GPU_LOST),)
    assert (found.seen, found.progress, found.checkpoints) == ((), (), ())


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"until_s": "yesterday"},
        {"until_s": 1.0, "load": []},
        {"until_s": 1.0, "events": [{"kind": "gpu-broke"}]},
        {"until_s": 1.0, "loads": [{"task": "t"}]},
    ],
)
def test_what_is_misspelled_is_refused(wrong):
    """An observation that nobody reads is worse than none."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Observations)

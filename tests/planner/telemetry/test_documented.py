"""The page on telemetry describes what is recorded, all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from libra_plan.planner.telemetry.recording import Header
from libra_plan.planner.telemetry.sample import (
    GpuDetails,
    GpuSample,
    GpuState,
    HostSample,
    MigInstance,
    NodeSample,
    ProcessUse,
)

PAGE = Path(__file__).parents[3] / "docs" / "telemetry.md"
TESTS = Path(__file__).parent

if not PAGE.exists():
    pytest.skip("run against an installed package", allow_module_level=True)


@pytest.mark.parametrize(
    "struct", [Header, NodeSample, GpuSample, GpuDetails, ProcessUse, MigInstance, HostSample]
)
def test_every_field_of_a_recording_is_described(struct):
    """Who reads a recording without this program has nothing but the page."""
    named = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    assert set(struct.__struct_fields__) <= named


def test_every_state_is_described():
    """A state that nobody knows is read as `ok`."""
    text = PAGE.read_text(encoding="utf-8")
    assert [state.value for state in GpuState if f"`{state.value}`" not in text] == []


def test_every_fault_of_the_page_has_the_test_it_names():
    """Twelve faults, each with a test that fails when it is no longer handled."""
    named = re.findall(r"\| `(test_\w+)` \|", PAGE.read_text(encoding="utf-8"))
    assert len(named) == 12
    there = "".join(path.read_text(encoding="utf-8") for path in TESTS.glob("test_*.py"))
    assert [name for name in named if f"def {name}(" not in there] == []

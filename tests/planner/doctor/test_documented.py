"""The page on the doctor has every code and level."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from libra_plan.planner.doctor import FINDERS, Level

PAGE = Path(__file__).parents[3] / "docs" / "doctor.md"

if not PAGE.exists():
    pytest.skip("run against an installed package", allow_module_level=True)


def test_every_code_is_described_in_the_order_of_the_findings():
    """Who gets a code looks it up there."""
    rows = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [finder.code for finder in FINDERS]


def test_every_level_is_named():
    """--fail-on takes them."""
    text = PAGE.read_text(encoding="utf-8")
    assert [level.value for level in Level if f"`{level.value}`" not in text] == []

"""The table of field reports names the tests that keep them from happening here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "field_reports.md"
ROW = re.compile(r"^\| (A\d{3}) \| \S+ \| (.*) \|$", flags=re.MULTILINE)


@pytest.mark.skipif(not (ROOT / "planner").exists(), reason="a wheel's tests have no source beside them")
def test_every_file_of_the_table_names_its_report() -> None:
    """A test that moved, or lost its id, would leave the table pointing nowhere."""
    rows = ROW.findall(TABLE.read_text(encoding="utf-8"))
    assert rows
    named = [(report, path) for report, cell in rows for path in re.findall(r"`([^`]+)`", cell)]
    wrong = [
        (report, path)
        for report, path in named
        if not (ROOT / path).exists() or report.lower() not in (ROOT / path).read_text("utf-8").lower()
    ]
    assert wrong == []

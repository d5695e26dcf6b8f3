"""The sizes of a batch as text: which fits, which is the present one, and what to do."""

from __future__ import annotations

import libra_plan as lp
from libra_plan.planner.report.batch_text import batch_data, batch_text


def sizes(tmp_path, limit_mib):
    """Ask for the sizes of the shipped training profile."""
    (tmp_path / "lengths.txt").write_text("2048\n" * 8, encoding="utf-8")
    return lp.batch_sizes(
        "h200-qwen2.5-1.5b-train", tmp_path / "lengths.txt", limit_mib=limit_mib, samples_per_rank=32
    )


def test_each_size_has_a_row_and_the_advice_follows(tmp_path):
    """The row with the arrow is where the user is."""
    found = sizes(tmp_path, 60_000)
    text = batch_text(found, 1, recorded=False)
    table, _, advice = text.partition("\n\n")
    assert len(table.splitlines()) == len(found.sizes) + 1
    assert [line.split()[0] for line in table.splitlines() if "←" in line] == ["1"]
    assert advice.startswith(("stay at 1 ", "go to "))
    assert advice.endswith(f"to spare of 60000 MiB: {found.largest}")


def test_the_data_holds_the_same_advice(tmp_path):
    """Scripts act on it."""
    found = sizes(tmp_path, 60_000)
    data = batch_data(found)
    assert data["next"]["size"] == found.advice.size
    assert data["largest"] == found.largest
    assert [each["size"] for each in data["sizes"]] == [each.size for each in found.sizes]

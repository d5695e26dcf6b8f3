"""Tables of profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from libra_plan.models.assess import check_profiles, fit_profiles, predict_costs
from libra_plan.planner.report import profile_tables as tables
from libra_plan.profiles.catalog import shipped_folder
from libra_plan.profiles.importers.base import RejectedRow
from libra_plan.profiles.importers.run import FORMATS, ImportReport
from libra_plan.profiles.measure.measure import MeasureReport
from libra_plan.profiles.measure.runner import Counts

FOLDER = shipped_folder() / "h200-qwen2.5-0.5b-decode"


def test_a_fit_is_the_same_in_table_and_data():
    """Scripts read the data, people the table: the same coefficients in both."""
    fits = fit_profiles(FOLDER)
    (data,) = tables.fit_data(fits)["h200-qwen2.5-0.5b-decode"]
    text = tables.fit_table(fits)
    for name, value in data["time_s"]["coefficients"].items():
        assert f"{name}={value:.4g}" in text
    assert tables.fit_note(fits, 0.5) == "1 profile fitted in 0.50 s"


def test_the_worst_points_are_as_many_as_asked_for():
    """None leaves out their table, and the column `why not` stands only where something is said."""
    checks = check_profiles(FOLDER)
    assert "worst points" not in tables.check_text(checks, 0)
    assert "why not" not in tables.check_text(checks, 0)
    assert len(tables.check_text(checks, 3).split("worst points:\n")[1].splitlines()) == 1 + 3
    (data,) = tables.check_data(checks, 3)
    assert len(data["worst"]) == 3
    assert "left_out" not in data


def test_an_answer_repeats_what_was_asked(tmp_path):
    """Rows are joined to the file by line; a bad row shows its cells."""
    path = tmp_path / "p.csv"
    path.write_text(
        "role,model,batch,seq_len,mode\ndecode,qwen2.5-0.5b,4,1024,cudagraph\ndecoding,m,many,1,\n"
    )
    found = predict_costs(FOLDER, path)
    good, bad = tables.answer_data(found)
    assert (good["line"], good["role"], good["batch"], good["refusal"]) == (2, "decode", 4, None)
    assert (bad["line"], bad["role"], bad["batch"], bad["time_s"]) == (3, "decoding", "many", None)
    lines = tables.answer_table(found).splitlines()
    assert "model m, batch many, seq_len 1" in lines[2]
    assert lines[2].count("?") >= 6
    assert tables.answer_note(found, 1.0) == "2 rows, 1 refused, in 1.00 s, fits included"


def test_a_measurement_counts_what_became_of_its_points():
    """The columns are the counts, in words."""
    report = MeasureReport((Path("x"),), Path("j"), {"x": Counts(ok=3, oom=1, left=2)})
    header, row = tables.measure_table(report).splitlines()
    assert header.split("  ")[0] == "profile"
    assert row.split() == ["x", "3", "1", "0", "0", "2"]
    data = tables.measure_data(report)
    assert (data["folders"], data["journal"], data["counts"]["x"]["left"]) == (["x"], "j", 2)


def test_an_import_lists_rows_kept_and_kept_out():
    """Both are asked for by scripts."""
    report = ImportReport((Path("out/p"),), {"p": 9}, (RejectedRow("t.csv:3", "too fast"),), ("few",))
    assert tables.import_table(report).splitlines()[1].split() == ["p", "9", "out/p"]
    data = tables.import_data(report)
    assert data["quarantined"] == [{"where": "t.csv:3", "reason": "too fast"}]
    assert data["warnings"] == ["few"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_listed_with_its_needs(name):
    """The list is where users look for flags."""
    assert name in tables.formats_text()
    needs = tables.formats_data()["formats"][name]["needs"]
    assert set(needs) <= set(tables.formats_data()["flags"])

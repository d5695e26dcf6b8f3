"""`price` says what was taken for granted, and takes the running plan in any form."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_run import train_task, write_workload

import libra_plan as lp
from libra_plan.errors import InputError
from libra_plan.planner.inputs.price import read_running, switch_cost_files
from libra_plan.profiles.switch_costs import STORE


@pytest.fixture
def folder(tmp_path):
    return write_workload(tmp_path / "work", [train_task("a")])


def test_what_was_assumed_is_said(folder):
    """CPU cores and host memory limit plans, and nobody stated them."""
    said: list[str] = []
    lp.price(folder, gpus=2, notes=said.append)
    assert any(line.startswith("assumed per GPU: 24 CPU cores") for line in said)


def test_notes_are_logged_where_nobody_takes_them(folder, caplog):
    """A library must not print."""
    with caplog.at_level("INFO", logger="libra_plan"):
        lp.price(folder, gpus=2)
    assert any("assumed per GPU" in each.message for each in caplog.records)


def test_the_running_plan_may_be_a_plan_a_manifest_a_file_or_a_folder(folder, tmp_path):
    """All of them say the same: what runs now."""
    plan = lp.solve(folder, gpus=2)
    manifest = plan.save(tmp_path / "run")
    for running in (plan, manifest, tmp_path / "run", str(tmp_path / "run" / "manifest.json")):
        assert read_running(running) == manifest
        assert [each.task for each in lp.price(folder, gpus=2, running=running).running] == ["a"]
    assert read_running(None) is None


def test_recorded_costs_are_looked_for_beside_the_running_plan(tmp_path):
    """A file that is named must be there; the others are looked for."""
    (tmp_path / "run").mkdir()
    run = tmp_path / "run"
    assert switch_cost_files(None, run, None, str(run / "manifest.json")) == (run / STORE, run / STORE)
    with pytest.raises(InputError, match="no recorded costs"):
        switch_cost_files(tmp_path / "none.jsonl", run)
    (run / STORE).touch()
    assert switch_cost_files(run / STORE) == (Path(run / STORE),)

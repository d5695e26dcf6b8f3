"""`validate` tells what lies somewhere, and refuses at the first fault."""

from __future__ import annotations

import pytest
from cli_run import train_task, write_workload

import libra_plan as lp
from libra_plan.errors import InputError


def test_a_folder_is_described_whole(tmp_path):
    """Profiles, tasks and the verdict."""
    lines = lp.validate(write_workload(tmp_path / "w", [train_task("a")]))
    assert any(line.startswith("task a: ") for line in lines)
    assert lines[-1].endswith(": sound")


def test_a_saved_plan_is_described(tmp_path):
    """Whoever gets a folder wants to know what it is."""
    lp.solve(write_workload(tmp_path / "w", [train_task("a")]), gpus=2, out=tmp_path / "run")
    (line,) = lp.validate(str(tmp_path / "run"))
    assert "manifest libra-plan, generation 1, 1 task on" in line


@pytest.mark.parametrize("text", ["{}", "tasks: []", "a: 1"])
def test_a_file_that_cannot_be_checked_alone_is_refused_with_what_can(tmp_path, text):
    """A workload says nothing without its profiles."""
    path = tmp_path / "some.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="not a file that can be checked alone"):
        lp.validate(path)

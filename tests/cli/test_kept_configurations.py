"""Columns in the cache folder: a second solve begins with them, and nobody has to keep any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_run import train_task, write_workload


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder that a cache of this test's own keeps columns in."""
    monkeypatch.setenv("LIBRA_PLAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "columns"


def test_a_second_solve_begins_with_what_the_first_kept(call, folder, kept, tmp_path):
    """Same bytes from kept columns; a changed task adds its own and leaves the others'."""
    words = ("solve", folder, "--gpus", 4, "--format", "json", "--deterministic")
    none = call(*words, "--columns-mib", 0)
    assert not kept.exists()
    cold = call(*words)
    files = {path: path.read_bytes() for path in kept.iterdir()}
    assert len(files) == 2
    warm = call(*words)
    assert none.out == cold.out == warm.out
    assert {path: path.read_bytes() for path in kept.iterdir()} == files
    one, other = train_task("a"), train_task("b", model="1.5b", weight=3.0)
    other["max_gpus"] = 1
    assert call("solve", write_workload(tmp_path / "other", [one, other]), *words[2:]).code == 0
    assert len(set(kept.iterdir()) - set(files)) == 1


def test_damaged_columns_are_told_on_stderr(call, folder, kept):
    """A damaged file must neither change the plan nor go unsaid."""
    words = ("solve", folder, "--gpus", 4, "--format", "json")
    first = call(*words)
    for path in kept.iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    again = call(*words)
    assert again.code == 0
    assert json.loads(again.out) == json.loads(first.out)
    assert again.err.count("cannot be used and are made anew") == 2
    assert "cannot be used" not in call(*words).err


def test_the_size_may_come_from_the_environment(call, folder, kept, monkeypatch):
    """As every option: flag before environment before file."""
    monkeypatch.setenv("LIBRA_PLAN_SOLVE_COLUMNS_MIB", "0")
    assert call("solve", folder, "--gpus", 4).code == 0
    assert not kept.exists()
    assert call("solve", folder, "--gpus", 4, "--columns-mib", 0.0001).code == 0
    assert list(kept.iterdir()) == []
    assert call("solve", folder, "--gpus", 4, "--columns-mib", 1).code == 0
    assert len(list(kept.iterdir())) == 2


def test_a_look_reads_what_a_solve_has_kept(call, kept, tmp_path):
    """`replan` under cron is a new process every time: it must not weigh every task anew."""
    work = write_workload(tmp_path / "lab", [train_task("rm")])
    assert call("solve", work, "--gpus", 2, "--out", "run").code == 0
    (entry,) = kept.iterdir()
    entry.write_bytes(b"damaged")
    ran = call("replan", work, "--gpus", 2, "--run", "run", "--dry-run")
    assert ran.code == 0
    assert "cannot be used and are made anew" in ran.err
    assert entry.read_bytes() != b"damaged"

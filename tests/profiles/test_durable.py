"""A crash while a file is written loses neither the old nor the new one."""

from __future__ import annotations

import os

import pytest

from libra_plan.profiles.durable import write_atomically


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    """A full disk or a crash before the rename must leave the old file, and no litter."""
    path = tmp_path / "state.json"
    write_atomically(path, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]

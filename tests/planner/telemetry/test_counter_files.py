"""Files of counters: one per process, whole lines, and no loop that fails for their sake."""

from __future__ import annotations

import errno
import os

import pytest
from counter_cases import Clock, make, windows

import libra_plan
from libra_plan.planner.telemetry import counter_files
from libra_plan.planner.telemetry.work_windows import find_recordings, read_windows


@pytest.fixture
def clock():
    return Clock()


def test_a_restarted_process_and_one_with_the_same_id_have_files_of_their_own(tmp_path, clock):
    """Process ids are given out again: the lines of the one before stay as they are."""
    for tokens in (1, 2, 3):
        counter = make(tmp_path, clock)
        clock.wait(10)
        counter.add(tokens=tokens)
        counter.close()
    assert len(find_recordings([tmp_path])) == 3
    assert [window.tokens for window in windows(tmp_path)] == [1, 2, 3]
    assert len({window.source for window in windows(tmp_path)}) == 3


def test_a_full_disk_costs_no_counts_and_stops_no_loop(tmp_path, clock, monkeypatch, caplog):
    """What cannot be written stays counted; a line that went out in part leaves the next one whole."""
    counter = make(tmp_path, clock)
    write, refusals = os.write, ["partly", "none"]

    def full(handle, data):
        if not refusals:
            return write(handle, data)
        if refusals.pop(0) == "partly":
            return write(handle, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(counter_files.os, "write", full)
    for tokens in (1, 2):
        clock.wait(10)
        counter.add(tokens=tokens)
        assert "space" in counter.error
    clock.wait(10)
    counter.add(tokens=4)
    assert counter.error is None
    assert len(caplog.records) == 1  # said once, not at every window
    rejected = []
    (window,) = read_windows(find_recordings([tmp_path]), rejected)
    assert (window.tokens, window.length_s, window.write_errors) == (7, 30, 2)
    assert [each.reason for each in rejected] == ["not a whole JSON object: torn"]


def test_a_folder_that_cannot_be_made_stops_no_loop(tmp_path, clock):
    """A wrong path is told by `error`, not by an exception in the middle of training."""
    (tmp_path / "file").write_text("")
    counter = make(tmp_path / "file" / "folder", clock)
    clock.wait(10)
    counter.add(tokens=1)
    assert "file" in counter.error


def test_files_are_rotated_and_only_the_last_are_kept(tmp_path, clock):
    """A run of months must not fill the disk (A081)."""
    counter = make(tmp_path, clock, file_mib=0.001, keep_files=2)
    for _ in range(40):
        clock.wait(10)
        counter.add(tokens=1)
    files = find_recordings([tmp_path])
    assert len(files) == 2
    assert all(path.stat().st_size < 2000 for path in files)
    assert len({window.source for window in windows(tmp_path)}) == 1
    assert windows(tmp_path)[-1].end_s == clock.now_s


def test_long_names_are_cut_in_the_file_name_alone(tmp_path, clock):
    """File systems take 255 bytes."""
    named = {"task": "t" * 300, "role": "r", "environment": {}}
    made = libra_plan.counter(tmp_path, **named, clock=clock, utc=lambda: clock.wall_s)
    clock.wait(1.0)
    made.add(tokens=1)
    made.close()
    (window,) = windows(tmp_path)
    assert window.task == "t" * 300

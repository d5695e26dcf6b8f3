"""The journal survives what a crash does to a file, and does not take a damaged line for the truth."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.errors import LaunchError
from libra_plan.planner.runtime import journal as r
from libra_plan.planner.runtime.journal import JOURNAL, open_journal, read_journal

RECORDS = (
    r.Opened(launch_id="1-2-3", node="n0", working_folder="/here"),
    r.Begun(target="sha256:" + "0" * 64, generation=1, steps=(), force=False),
    r.Ordered(task="t", request="x", generation=1, folder="/c", after_step=None),
    r.Saved(task="t", step=5, save_s=None),
    r.Finished(running=None, back=True),
)


def opened(folder, boot=10.0, utc=0.0):
    return open_journal(folder, boot_clock=lambda: boot, utc_clock=lambda: utc)


def written(folder):
    journal = opened(folder)
    for record in RECORDS:
        journal.append(record)
    return folder / JOURNAL


def test_what_was_appended_is_read(tmp_path):
    """A second supervisor knows what the first one did."""
    assert read_journal(tmp_path) == []
    written(tmp_path)
    assert tuple(entry.record for entry in read_journal(tmp_path)) == RECORDS
    journal = opened(tmp_path)
    journal.append(r.Through(step="s"))
    assert [entry.number for entry in read_journal(tmp_path)] == [0, 1, 2, 3, 4, 5]
    assert journal.notes == ()


@given(cut=st.integers(0, 10_000))
def test_a_journal_that_was_cut_off_is_one_with_fewer_records(tmp_path_factory, cut):
    """A crash while a line is written leaves part of it, and the record was not acted on yet."""
    path = written(tmp_path_factory.mktemp("journal"))
    data = path.read_bytes()
    kept = data[: cut % (len(data) + 1)]
    path.write_bytes(kept)
    whole = kept.count(b"\n")
    assert tuple(entry.record for entry in read_journal(path.parent)) == RECORDS[:whole]
    journal = opened(path.parent)
    assert bool(journal.notes) == (not kept.endswith(b"\n") and kept != b"")
    journal.append(r.Through(step="s"))
    assert len(read_journal(path.parent)) == whole + 1


@pytest.mark.parametrize("zeros", [1, 4096])
def test_zeros_at_the_end_are_moved_aside_and_told(tmp_path, zeros):
    """A076: after a power loss a file may end in NUL bytes; what was synced before them counts."""
    path = written(tmp_path)
    with path.open("ab") as file:
        file.write(b"\0" * zeros)
    journal = opened(tmp_path)
    assert len(journal.entries) == len(RECORDS)
    assert "journal.jsonl.torn-1" in journal.notes[0]
    assert (tmp_path / "journal.jsonl.torn-1").read_bytes() == b"\0" * zeros
    path.write_bytes(b"\0" * zeros)
    assert opened(tmp_path).entries == []
    assert (tmp_path / "journal.jsonl.torn-2").exists()


def test_a_fault_in_the_middle_stops(tmp_path):
    """Records behind it were acted on, so what runs can no longer be known from the file."""
    path = written(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    for damage in (lines[2].replace(b'"x"', b'"y"'), b"garbage\n", b""):
        path.write_bytes(b"".join((*lines[:2], damage, *lines[3:])))
        with pytest.raises(LaunchError, match="damaged in its middle") as caught:
            read_journal(tmp_path)
        assert caught.value.where.line == 3


def test_stamps_are_utc_and_durations_are_not_made_of_them(tmp_path):
    """A078, A079: an NTP step or another time zone changes no duration, and stamps say what they are."""
    opened(tmp_path, boot=100.0, utc=1e9).append(RECORDS[0])
    opened(tmp_path, boot=101.5, utc=1e9 - 3600.0).append(RECORDS[1])
    first, second = read_journal(tmp_path)
    assert second.boot_s - first.boot_s == 1.5
    assert datetime.datetime.fromisoformat(first.at).utcoffset() == datetime.timedelta(0)


def test_more_than_one_line_is_never_cut_off(tmp_path):
    """Each line is on disk before the next is written, so two that cannot be read were acted on."""
    path = written(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + b"\0garbage\n" * 2)
    with pytest.raises(LaunchError, match="damaged in its middle"):
        opened(tmp_path)
    assert not list(tmp_path.glob("*.torn-*"))


def test_a_last_record_of_another_version_is_not_cut_off(tmp_path):
    """What a later version did must not be forgotten by an earlier one."""
    path = written(tmp_path)
    *whole, last = path.read_bytes().splitlines(keepends=True)
    for changed in (last.replace(b'"finished"', b'"rewound"'), last.replace(b"true", b"false")):
        path.write_bytes(b"".join((*whole, changed)))
        with pytest.raises(LaunchError, match="not known here, or was changed") as caught:
            opened(tmp_path)
        assert caught.value.where.line == len(RECORDS)
    path.write_bytes(b"".join((*whole, b"\0" * 30 + b"\n")))
    assert len(opened(tmp_path).entries) == len(whole)

"""A recording keeps its limits, survives the disk, and is read back as it was written."""

from __future__ import annotations

import errno
import gzip
import os
import resource
import signal
from pathlib import Path

import msgspec
import pytest
from fake_nvml import Hands
from telemetry_cases import gpu, recorder, sample

from libra_plan.errors import InputError, LockedError
from libra_plan.planner.telemetry import recording
from libra_plan.planner.telemetry.recording import (
    RecordedSource,
    RecordingReader,
    Retention,
    parts,
    read_tail,
)


def record(folder: Path, times, hands=None, **more):
    hands = hands or Hands()
    made = recorder(folder, hands, **more)
    for at_s in times:
        hands.pass_s(1)
        made.write(sample(at_s))
    made.close()


def times(path: Path):
    return [each.sample.monotonic_s for each in RecordingReader(path)]


def test_what_is_read_is_what_was_written(tmp_path):
    """A recording is the one thing that is left of a run."""
    made = recorder(tmp_path, Hands())
    written = [sample(1.0, gpu(0, None), gpu(1, 0.0)), sample(2.0, faults=("a",))]
    for each in written:
        made.write(each)
    made.close()
    assert [each.sample for each in RecordingReader(tmp_path)] == written
    assert [each.sample for each in RecordingReader(parts(tmp_path)[0])] == written


def test_unknown_is_null_in_the_file(tmp_path):
    """Readers in other languages must see that 0 is 0 and unknown is null."""
    made = recorder(tmp_path, Hands())
    made.write(sample(1.0, gpu(0, None), gpu(1, 0.0)))
    made.close()
    line = parts(tmp_path)[0].read_text(encoding="utf-8").splitlines()[1]
    told = [each["utilization_percent"] for each in msgspec.json.decode(line)["gpus"]]
    assert told == [None, 0.0]


def test_a_torn_last_line_is_left_out_and_said(tmp_path):
    """A host that loses power leaves half a line; what came before it is whole."""
    record(tmp_path, [1.0, 2.0])
    (path,) = parts(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 40])
    reader = RecordingReader(tmp_path)
    assert [each.sample.monotonic_s for each in reader] == [1.0]
    assert [(where.line, where.file) for where in reader.damaged] == [(3, str(path))]


def test_bytes_in_the_middle_that_are_no_line_cost_only_themselves(tmp_path):
    """NUL bytes of a crashed file system must not hide the week after them."""
    record(tmp_path, [1.0, 2.0, 3.0])
    (path,) = parts(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b"\0" * 100 + b"\n"
    path.write_bytes(b"".join(lines))
    assert times(tmp_path) == [1.0, 3.0]


def test_parts_rotate_by_size_and_age_and_full_ones_are_compressed(tmp_path):
    """A081: one file that grows for ever can neither be kept nor read."""
    record(tmp_path / "size", map(float, range(40)), retention=Retention(part_mib=4 / 1024))
    found = parts(tmp_path / "size")
    assert len(found) > 3
    assert {path.suffix for path in found[:-1]} == {".gz"}
    assert found[-1].suffix == ".jsonl"
    assert times(tmp_path / "size") == list(map(float, range(40)))
    record(tmp_path / "age", map(float, range(10)), retention=Retention(part_s=3.0))
    assert len(parts(tmp_path / "age")) == 4
    assert times(tmp_path / "age") == list(map(float, range(10)))


def test_retention_keeps_the_newest_within_size(tmp_path):
    """The disk belongs to the work, not to its monitor."""
    limits = Retention(part_mib=4 / 1024, keep_mib=3 / 1024)
    record(tmp_path, map(float, range(200)), retention=limits)
    closed = parts(tmp_path)[:-1]
    assert closed
    assert sum(path.stat().st_size for path in closed) <= 3 * 1024
    assert times(tmp_path)[-1] == 199.0


def test_retention_deletes_what_is_too_old_even_when_the_clock_jumps(tmp_path):
    """A clock that jumps by years must not delete a recording; age passes with the monotonic clock."""
    hands = Hands()
    limits = Retention(part_s=10.0, keep_s=100.0)
    made = recorder(tmp_path, hands, retention=limits)
    for second in range(15):
        made.write(sample(float(second)))
        for path in parts(tmp_path):
            os.utime(path, (hands.utc_s, hands.utc_s))
        hands.pass_s(1)
    first = parts(tmp_path)[0]
    hands.utc_s += 10 * 365 * 86400
    hands.monotonic_s += 10
    made.write(sample(100.0))
    assert first.exists()
    hands.monotonic_s += 100
    made.write(sample(200.0))
    made.close()
    assert not first.exists()


class FullDisk(recording.FileIO):
    """A file on a disk that has no room while `full` is set."""

    full = False

    def write(self, data):
        if FullDisk.full:
            if len(data) > 100:
                return super().write(bytes(data)[:50])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_full_disk_stops_the_recording_once_said_and_it_goes_on_when_there_is_room(tmp_path, monkeypatch):
    """The monitor goes on without its recording, and the recording without the lost samples."""
    monkeypatch.setattr(recording, "FileIO", FullDisk)
    hands, said = Hands(), []
    made = recorder(tmp_path, hands, said)
    made.write(sample(1.0))
    monkeypatch.setattr(FullDisk, "full", True)
    for second in range(2, 30):
        hands.pass_s(1)
        made.write(sample(float(second)))
    assert len(said) == 1
    assert "No space left" in said[0]
    monkeypatch.setattr(FullDisk, "full", False)
    hands.pass_s(10)
    made.write(sample(30.0))
    made.write(sample(31.0))
    made.close()
    assert len(said) == 2
    assert "samples lost: 28" in said[1]
    assert times(tmp_path) == [1.0, 30.0, 31.0]


def test_a_real_refusal_of_the_system_is_survived(tmp_path):
    """A limit on file size is the nearest thing to a full disk that a test may have."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hands, said = Hands(), []
    made = recorder(tmp_path, hands, said)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        for second in range(8):
            made.write(sample(float(second)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    hands.pass_s(10)
    made.write(sample(9.0))
    made.close()
    assert len(said) == 2
    assert "File too large" in said[0]
    assert times(tmp_path)[-1] == 9.0


def test_a_second_run_begins_a_part_of_its_own(tmp_path):
    """After a crash the last line may be torn; nothing may be written behind it."""
    record(tmp_path, [1.0])
    (path,) = parts(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    record(tmp_path, [5.0], Hands(1.7e9 + 60))
    assert len(parts(tmp_path)) == 2
    assert times(tmp_path) == [5.0]


def test_two_monitors_cannot_record_into_one_folder(tmp_path):
    """They would delete each other's parts; and a monitor that was killed must leave no lock behind."""
    made = recorder(tmp_path, Hands())
    with pytest.raises(LockedError, match="another monitor"):
        recorder(tmp_path, Hands())
    made.close()
    recorder(tmp_path, Hands()).close()


def test_an_unknown_version_stops_the_reading(tmp_path):
    """A093: what a newer version means cannot be guessed, least of all counted as nothing."""
    record(tmp_path, [1.0])
    (path,) = parts(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"schema_version":1', b'"schema_version":2'))
    with pytest.raises(InputError, match=r"version.*got 2; allowed: 1"):
        list(RecordingReader(tmp_path))
    path.write_bytes(b'{"kind":"header","schema_version":3,"new":true}\n')
    with pytest.raises(InputError, match=r"version.*got 3"):
        list(RecordingReader(tmp_path))


def test_a_stamp_without_a_time_zone_is_no_stamp(tmp_path):
    """A079: a naive time of day is another one in every time zone."""
    record(tmp_path, [1.0])
    (path,) = parts(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'Z","monotonic', b'","monotonic'))
    reader = RecordingReader(tmp_path)
    assert list(reader) == []
    assert len(reader.damaged) == 1


def test_the_tail_opens_no_more_than_it_needs(tmp_path):
    """A081: the last minute of a long recording must not cost reading all of it."""
    record(tmp_path, map(float, range(40)), retention=Retention(part_mib=4 / 1024))
    for path in parts(tmp_path)[:2]:
        path.write_bytes(b"not to be read")
    tail = read_tail(tmp_path, 5.0, damaged := [])
    assert [each.sample.monotonic_s for each in tail] == [34.0, 35.0, 36.0, 37.0, 38.0, 39.0]
    assert damaged == []


def test_the_tail_reads_at_most_its_limit_of_a_part(tmp_path):
    """A part of any size must not fill memory."""
    record(tmp_path, map(float, range(1000)))
    (path,) = parts(tmp_path)
    line = len(path.read_bytes().splitlines()[-1]) + 1
    tail = read_tail(path, 1e9, [], limit=5 * line + 10)
    assert [each.sample.monotonic_s for each in tail] == [995.0, 996.0, 997.0, 998.0, 999.0]
    assert {each.run for each in tail} == {next(iter(RecordingReader(path))).run}


def test_a_compressed_part_that_was_cut_off_gives_what_is_whole(tmp_path):
    """Copies break off, too."""
    record(tmp_path, map(float, range(100)))
    (path,) = parts(tmp_path)
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes())[:-200])
    path.unlink()
    reader = RecordingReader(tmp_path)
    assert 0 < len(list(reader)) < 100
    assert reader.damaged


def test_a_crash_between_compressing_and_deleting_doubles_nothing(tmp_path):
    """Both files are whole then; each sample counts once."""
    record(tmp_path, [1.0, 2.0])
    (path,) = parts(tmp_path)
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    assert times(tmp_path) == [1.0, 2.0]


def test_a_recording_plays_as_a_source(tmp_path):
    """Everything that takes live samples can be tried on a recording."""
    record(tmp_path, [1.0, 2.0])
    source = RecordedSource(tmp_path)
    assert [source.read()[0].monotonic_s for _ in range(2)] == [1.0, 2.0]
    assert source.read() is None
    with pytest.raises(InputError, match="no recording there"):
        RecordedSource(tmp_path / "nothing")


def test_a_real_recording_is_read_whole():
    """Made on two H200: what the tests make up must not be all that is ever read."""
    folder = Path(__file__).parents[2] / "data" / "telemetry" / "h200_x2"
    samples = [played.sample for played in RecordingReader(folder)]
    assert len(samples) == 63
    assert {gpu.state.value for sample in samples for gpu in sample.gpus} == {"ok"}
    assert {len(sample.gpus) for sample in samples} == {2}
    assert max(gpu.nvlink_tx_bytes_per_s or 0 for sample in samples for gpu in sample.gpus) > 390e9
    assert any(gpu.details.processes for sample in samples for gpu in sample.gpus)


def test_a_line_that_is_nested_without_end_is_a_damaged_one(tmp_path):
    """The decoder gives up on it with an error of its own."""
    record(tmp_path, [1.0, 2.0])
    (path,) = parts(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"kind":"sample","x":' + b"[" * 200_000 + b"\n")
    reader = RecordingReader(tmp_path)
    assert len(list(reader)) == 2
    assert len(reader.damaged) == 1


def test_a_part_that_cannot_be_read_is_told_and_one_that_is_gone_left_out(tmp_path, monkeypatch):
    """Who reads beside a monitor finds parts deleted or compressed that were just listed."""
    record(tmp_path, map(float, range(40)), retention=Retention(part_mib=4 / 1024))
    listed = parts(tmp_path)
    monkeypatch.setattr("libra_plan.planner.telemetry.recording.parts", lambda _: listed)
    whole = times(tmp_path)
    listed[0].unlink()
    assert times(tmp_path) == whole[len(whole) - len(times(tmp_path)) :]
    assert read_tail(tmp_path, 1e9, [])[-1].sample.monotonic_s == 39.0
    listed[0].mkdir()
    for read in (lambda: times(tmp_path), lambda: read_tail(tmp_path, 1e9, [])):
        with pytest.raises(InputError, match="cannot be read; got Is a directory"):
            read()


def test_names_that_are_no_numbers_are_no_parts_of_ours(tmp_path):
    """A superscript two is a digit, and no number."""
    (tmp_path / "telemetry-\N{SUPERSCRIPT TWO}.jsonl").write_text("")
    record(tmp_path, [1.0])
    assert [path.name for path in parts(tmp_path)] == ["telemetry-000001.jsonl"]


@pytest.mark.parametrize("text", ["", "# Read me\n\nNo recording.\n"])
def test_a_file_that_is_no_recording_is_refused_as_a_source(tmp_path, text):
    """A monitor that ends after 0 looks without a word seems to have worked."""
    path = tmp_path / "README.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"holds no sample; got .*README\.md; allowed: a folder that"):
        RecordedSource(path).read()

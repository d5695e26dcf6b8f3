"""Reading recordings: whole lines only, clocks that go back, and files without end."""

from __future__ import annotations

import json

import msgspec
import pytest

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.work_windows import believable, find_recordings, read_windows


def line(start_s, end_s, **more):
    given = {"start_s": start_s, "t_s": end_s, "task": "t", "role": "r", "source": "p", "tokens": 10}
    return json.dumps(given | more) + "\n"


def read(tmp_path, text, **more):
    path = tmp_path / "run.jsonl"
    path.write_text(text, encoding="utf-8")
    rejected = []
    return list(read_windows([path], rejected, **more)), [each.reason for each in rejected]


def test_a_torn_last_line_is_left_out(tmp_path):
    """A process that was killed leaves half a line; the ones before it are sound."""
    found, rejected = read(tmp_path, line(0, 10) + line(10, 20)[:40])
    assert [window.end_s for window in found] == [10]
    assert rejected == ["not a whole JSON object: torn"]


def test_a_line_of_nul_bytes_and_of_wrong_types_is_left_out_with_its_reason(tmp_path):
    """After a power cut a block may be zeros, and somebody may write other JSON (A076)."""
    found, rejected = read(
        tmp_path, line(0, 10) + "\0" * 30 + "\n" + '{"t_s": "late", "role": "r"}\n' + line(10, 20)
    )
    assert [window.end_s for window in found] == [10, 20]
    assert rejected[0] == "not a whole JSON object: torn"
    assert "t_s" in rejected[1]


def test_a_clock_that_goes_back_costs_one_window(tmp_path):
    """A window that ends before the one ahead of it has no length that could be believed."""
    found, rejected = read(tmp_path, line(100, 110) + line(50, 60) + line(60, 70))
    assert [window.end_s for window in found] == [110, 70]
    assert rejected == ["the clock went back, from 110 to 60 s"]


def test_a_window_without_length_lends_its_counts_to_the_next(tmp_path):
    """Work that was done at once was done; its rate is unknown, not infinite."""
    found, rejected = read(tmp_path, line(0, 10) + line(10, 10, samples=3) + line(10, 20))
    assert [(window.end_s, window.tokens, window.samples) for window in found] == [
        (10, 10, None),
        (20, 20, 3),
    ]
    assert rejected == []


def test_recordings_without_starts_begin_where_the_line_before_ended(tmp_path):
    """The importers' format has ends only: its first line starts the clock of the role."""
    old = [{"t_s": at, "role": "actor", "tokens": 100, "steps": 1} for at in (5.0, 7.0, 11.0)]
    found, _ = read(tmp_path, "".join(json.dumps(each) + "\n" for each in old))
    assert [(window.start_s, window.end_s, window.tokens) for window in found] == [(5, 7, 100), (7, 11, 100)]


def test_a_format_from_the_future_is_refused(tmp_path):
    """Half-understood lines would be wrong rates (A093)."""
    with pytest.raises(InputError, match="schema_version 2") as caught:
        read(tmp_path, line(0, 10, schema_version=2))
    assert str(caught.value.where).endswith("run.jsonl:1")


def test_a081_the_end_of_a_long_file_is_read_without_the_rest(tmp_path):
    """Who looks at the last minutes need not read 200 MB; the cut line is no torn one."""
    text = "".join(line(at, at + 1) for at in range(1000))
    found, rejected = read(tmp_path, text, tail_bytes=500)
    assert 3 <= len(found) <= 8
    assert found[-1].end_s == 1000
    assert rejected == []


def test_a_folder_is_searched_and_an_empty_one_refused(tmp_path):
    """A wrong path must not look like a run in which nothing got done."""
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "a.jsonl").write_text(line(0, 1))
    (tmp_path / "telemetry-000001.jsonl").write_text("{}")  # the monitor records to the same folder
    assert [path.name for path in find_recordings([tmp_path])] == ["a.jsonl"]
    (tmp_path / "empty").mkdir()
    for wrong in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(InputError):
            find_recordings([wrong])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"t_s": 1.7e9}, "a window of 1.7e+09 s"),
        ({"tokens": -5}, "tokens is -5"),
        ({"tokens": 1e308}, "tokens is 1e+308"),
        ({"waiting_s": -1.0}, "waiting_s is -1"),
        ({"dp_rank": -1}, "dp_rank is -1"),
        ({"queues": {"experience": -3.0}}, "queue experience is -3"),
    ],
)
def test_what_cannot_be_is_left_out(tmp_path, wrong, reason):
    """A window as long as an epoch was dealt to millions of stretches, until memory was full."""
    found, rejected = read(tmp_path, line(0, 10) + line(10, 20, **wrong) + line(20, 30))
    assert found[0].end_s == 10
    assert rejected[0] == reason
    changes = {"end_s" if name == "t_s" else name: value for name, value in wrong.items()}
    assert list(believable([msgspec.structs.replace(found[0], **changes)], kept := [])) == []
    assert kept[0].reason == reason


def test_a_line_that_is_nested_without_end_is_left_out(tmp_path):
    """The decoder gives up on it with an error of its own."""
    deep = '{"role": "r", "t_s": 5, "x": ' + "[" * 200_000 + "\n"
    found, rejected = read(tmp_path, line(0, 10) + deep + line(10, 20))
    assert [window.end_s for window in found] == [10, 20]
    assert len(rejected) == 1

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.errors import InputError, WorkloadError
from libra_plan.profiles.traces import read_trace


def test_reads_lengths_with_header_and_comments(tmp_path: Path) -> None:
    """People export one column from a spreadsheet or a log."""
    path = tmp_path / "lengths.csv"
    path.write_bytes(b"# from run 7\r\nresponse_tokens\r\n12\r\n\r\n 7 \r\n30000\r\n")
    assert read_trace(path) == (12, 7, 30000)


@pytest.mark.parametrize("line", ["0", "-3", "1.5", "1,2", "abc", "1e3", "9" * 20])
def test_what_is_not_a_length_names_its_line(tmp_path: Path, line: str) -> None:
    """A zero or a fraction among thousands of lengths must be found."""
    path = tmp_path / "lengths.txt"
    path.write_text(f"5\n6\n{line}\n7\n", encoding="utf-8")
    with pytest.raises(WorkloadError, match=r"lengths\.txt:3: not a length"):
        read_trace(path)


@pytest.mark.parametrize("text", ["", "# nothing\n", "tokens\n"])
def test_an_empty_trace_is_refused(tmp_path: Path, text: str) -> None:
    """There is no distribution of no lengths."""
    path = tmp_path / "lengths.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WorkloadError, match="empty file"):
        read_trace(path)


@pytest.mark.parametrize("first", ["nan", "NaN", "inf", "None", "null"])
def test_what_programs_write_for_no_number_is_no_header(tmp_path: Path, first: str) -> None:
    """A trace that begins with NaN lost its first length without a word (A075)."""
    path = tmp_path / "lengths.txt"
    path.write_text(f"{first}\n7\n", encoding="utf-8")
    with pytest.raises(WorkloadError, match=r"lengths\.txt:1: not a length"):
        read_trace(path)


@given(st.lists(st.integers(1, 10**9), min_size=1))
def test_lengths_survive(tmp_path_factory: pytest.TempPathFactory, lengths: list[int]) -> None:
    """Order and values are those of the file."""
    path = tmp_path_factory.mktemp("trace") / "t"
    path.write_text("\n".join(map(str, lengths)), encoding="utf-8")
    assert read_trace(path) == tuple(lengths)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_never_crash(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever the file holds, the answer is lengths or an InputError."""
    path = tmp_path_factory.mktemp("trace") / "t"
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        assert min(read_trace(path)) >= 1

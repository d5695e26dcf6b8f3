from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import InputError, ProfileError
from libra_plan.profiles.points import MAX_POINTS, points_text, read_points
from libra_plan.profiles.schema import Phase, Point


def read(tmp_path: Path, text: str, phase: Phase | None = None) -> tuple[Point, ...]:
    path = tmp_path / "points.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return read_points(path, phase).points


CASES: dict[str, tuple[str, Phase | None, str]] = {
    "unknown column": ("batch_sequences,times_s\n1,2\n", None, "csv:1: times_s: unknown column.*`time_s`"),
    "other unit": ("batch_sequences,time_ms\n1,2\n", None, "did you mean `time_s`. the unit is part of"),
    "column twice": ("batch_sequences,tp,tp\n1,2,2\n", None, "`tp` stands twice"),
    "no batch": ("time_s\n1\n", None, "`batch_sequences` is missing"),
    "no header": ("1,512,0.01\n", None, "unknown column `1`"),
    "no rows": ("batch_sequences,time_s\n", None, "empty file"),
    "nothing": ("", None, "empty file"),
    "short row": (
        "batch_sequences,time_s\n1,2\n3\n",
        None,
        "csv:3: wrong number of cells; got 1; allowed: 2",
    ),
    "text": ("batch_sequences,time_s\n1,fast\n", None, "csv:2: time_s: expected a number > 0; got the text"),
    "zero time": ("batch_sequences,time_s\n1,0\n", None, "csv:2: time_s: expected a number > 0"),
    "negative memory": (
        "batch_sequences,time_s,peak_allocated_mib\n1,1,-5\n",
        None,
        "peak_allocated_mib: expected a number > 0",
    ),
    "nan": ("batch_sequences,time_s\n1,nan\n", None, "csv:2: time_s: not a finite number"),
    "half a sequence": ("batch_sequences,time_s\n1.5,1\n", None, "batch_sequences: expected a whole number"),
    "status": ("status,batch_sequences,time_s\nfine,1,1\n", None, "allowed: failed, ok, oom"),
    "ok without time": ("batch_sequences,time_s\n1,\n", None, "`time_s` is empty"),
    "oom with time": ("status,batch_sequences,time_s\noom,1,3\n", None, "status oom states a time"),
    "decode without length": ("batch_sequences,time_s\n1,1\n", "decode", "`seq_len_tokens` is empty"),
    "serve without prompt": (
        "batch_sequences,output_tokens,time_s\n1,1,1\n",
        "serve",
        "`prompt_tokens` is empty",
    ),
    "bounds": ("batch_sequences,time_s,time_low_s\n1,1,2\n", None, "`time_low_s` is above `time_s`"),
    "open quote": ('batch_sequences,time_s\n1,"2\n', None, "not valid CSV"),
    "contradiction": (
        "batch_sequences,seq_len_tokens,time_s\n1,512,1\n2,512,1\n1,512,1.06\n",
        None,
        "csv:4: two rows .* contradict .*line 2, .* on line 4",
    ),
    "ok and oom": (
        "status,batch_sequences,seq_len_tokens,time_s\nok,1,512,1\noom,1,512,\n",
        None,
        "contradict each other",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_table_names_line_and_column(tmp_path: Path, case: str) -> None:
    """A table of hundreds of rows can only be repaired when the message says where."""
    text, phase, words = CASES[case]
    with pytest.raises(ProfileError, match=words):
        read(tmp_path, text, phase)


def test_repeats_within_noise_are_all_kept(tmp_path: Path) -> None:
    """Repeats show the noise; averaging them away would hide it from the fit."""
    points = read(tmp_path, "batch_sequences,seq_len_tokens,time_s\n1,512,1\n1,512,1.04\n")
    assert [point.time_s for point in points] == [1, 1.04]


def test_oom_rows_are_kept(tmp_path: Path) -> None:
    """A run out of memory is a measurement too: it bounds what fits."""
    points = read(tmp_path, "status,batch_sequences,time_s\nok,1,1\noom,2,\nfailed,4,\n")
    assert [point.status for point in points] == ["ok", "oom", "failed"]


def test_blank_lines_and_windows_line_ends_do_not_shift_lines(tmp_path: Path) -> None:
    """Spreadsheets write both; the line in a message must be the editor's."""
    text = "batch_sequences,time_s\r\n\r\n1,1\r\n,,\r\nx,1\r\n"
    with pytest.raises(ProfileError, match="csv:5"):
        read(tmp_path, text.replace(",,\r\n", ",\r\n"))


def test_a_table_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    """The pairwise checks must not turn a wrong file into an endless run."""
    rows = "".join(f"{number},1\n" for number in range(1, MAX_POINTS + 2))
    with pytest.raises(ProfileError, match="too many points"):
        read(tmp_path, "batch_sequences,time_s\n" + rows)


quantities = st.none() | st.floats(min_value=1e-9, max_value=1e12, allow_nan=False)
counts = st.none() | st.integers(1, 2**40)


@st.composite
def measured(draw: st.DrawFn) -> Point:
    """Make any point the schema allows, its bounds in order."""
    low, middle, high = sorted(draw(st.tuples(*[st.floats(1e-9, 1e9)] * 3)))
    statuses: tuple[Literal["ok", "oom", "failed"], ...] = ("ok", "oom", "failed")
    status = draw(st.sampled_from(statuses))
    return Point(
        status=status,
        batch_sequences=draw(st.integers(1, 2**40)),
        seq_len_tokens=draw(counts),
        prompt_tokens=draw(counts),
        tp=draw(st.integers(1, 64)),
        dp=draw(st.integers(1, 4096)),
        time_s=middle if status == "ok" else None,
        time_low_s=draw(st.sampled_from([None, low])),
        time_high_s=draw(st.sampled_from([None, high])),
        tokens_per_s=draw(quantities),
        peak_reserved_mib=draw(quantities),
        kv_capacity_tokens=draw(counts),
    )


@settings(max_examples=100, deadline=None)
@given(
    points=st.lists(
        measured(),
        min_size=1,
        max_size=5,
        unique_by=lambda p: (p.batch_sequences, p.seq_len_tokens, p.prompt_tokens, p.tp, p.dp),
    )
)
def test_points_survive_a_round_trip_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, points: list[Point]
) -> None:
    """What is written is read back exactly, and the digest is that of the file."""
    path = tmp_path_factory.mktemp("points") / "points.csv"
    path.write_text(points_text(points), encoding="utf-8")
    table = read_points(path)
    assert table.points == tuple(points)
    assert table.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert points_text(table.points) == path.read_text(encoding="utf-8")


@settings(max_examples=200, deadline=None)
@given(
    content=st.binary(max_size=80) | st.text('batch_sequences,time\n\r"1. e-ok', max_size=80).map(str.encode)
)
def test_arbitrary_bytes_never_crash_the_table_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    """Whatever the file holds, the answer is a table or an InputError."""
    path = tmp_path_factory.mktemp("any") / "points.csv"
    path.write_bytes(content if content.startswith(b"b") else b"batch_sequences,time_s\n" + content)
    with contextlib.suppress(InputError):
        read_points(path)

"""Source files as records that know their place."""

import math

import pytest

from libra_plan.errors import ProfileError
from libra_plan.profiles.importers.records import UNITS, SourceRecord, columns_by_file, read_source, records


def found(tmp_path, name, text, endings=(".json", ".jsonl", ".csv")):
    """Read one file as records."""
    (tmp_path / name).write_text(text)
    return list(records(read_source(tmp_path / name, endings)))


@pytest.mark.parametrize(
    ("name", "text", "places"),
    [
        ("a.json", '{"x": 1}', ["a.json"]),
        ("a.json", '[{"x": 1}, {"x": 2}]', ["a.json[0]", "a.json[1]"]),
        ("a.jsonl", '{"x": 1}\n\n{"x": 2}\n', ["a.jsonl:1", "a.jsonl:3"]),
        ("a.csv", "x,y\n1,\n\n2,3\n", ["a.csv:2", "a.csv:4"]),
    ],
)
def test_every_record_knows_where_it_stands(tmp_path, name, text, places):
    """A row that is kept out must be found again in the user's file."""
    assert [record.where for record in found(tmp_path, name, text)] == places


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"x": 1}\n{"x": ', "a.jsonl:2: not valid JSON"),
        ("a.json", "[1]", "not a JSON object"),
        ("a.json", "[" * 100_000, "too deep"),
        ("a.csv", "x,y\n1\n", "a.csv:2: wrong number of cells"),
        ("a.csv", 'x\n"1\n', "not valid CSV"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path, name, text, said):
    """A log that was cut short by a crash is the usual case."""
    with pytest.raises(ProfileError, match=said):
        found(tmp_path, name, text)


def test_files_of_a_folder_are_read_by_name_and_pinned_together(tmp_path):
    """Any change of any file is another source."""
    (tmp_path / "b.json").write_text('{"x": 2}')
    (tmp_path / "a.json").write_text('{"x": 1, "y": 1}')
    (tmp_path / "notes.txt").write_text("no record")
    source = read_source(tmp_path, (".json",))
    assert [name for name, _ in source.texts] == ["a.json", "b.json"]
    assert columns_by_file(source) == [("a.json", ["x", "y"]), ("b.json", ["x"])]
    (tmp_path / "b.json").write_text('{"x": 3}')
    assert read_source(tmp_path, (".json",)).sha256 != source.sha256
    with pytest.raises(ProfileError, match="nothing to import"):
        read_source(tmp_path, (".csv",))


@pytest.mark.parametrize(
    ("value", "number"),
    [("1.5", 1.5), (0, 0.0), (True, None), ("", None), (math.nan, None), (math.inf, None), (10**400, None)],
)
def test_a_field_is_a_number_or_nothing(value, number):
    """Infinity and what arithmetic would turn into it are no numbers of a log."""
    assert SourceRecord("a", {"x": value}).number("x") == number


def test_the_first_named_field_that_holds_a_number_counts():
    """Versions of one program call the same reading by several names."""
    record = SourceRecord("a", {"new": None, "old": 2, "negative": -1})
    assert record.number("new", "old") == 2.0
    assert record.positive("negative", "old") is None


def test_units_are_decimal_or_binary_by_name():
    """GB is 10^9 bytes, GiB is 2^30."""
    assert UNITS["GiB"][1](1) == 1024.0
    assert UNITS["GB"][1](1) == pytest.approx(953.674, rel=1e-5)
    assert UNITS["ms"][1](1500) == 1.5

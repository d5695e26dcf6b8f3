"""What every reader does: leave out what is mangled, and refuse what it cannot read."""

from __future__ import annotations

import pytest

from libra_plan.errors import InputError, ProfileError
from libra_plan.planner.telemetry.readers import READERS, ReaderFacts, find_reader
from libra_plan.profiles.importers.records import read_source


def test_a_step_without_length_is_left_out(tmp_path):
    """A step of 0 s has no rate."""
    (tmp_path / "run.jsonl").write_text('{"timing_s/step": 0.0, "timing_s/gen": 0.0}\n')
    rejected = []
    source = read_source(tmp_path / "run.jsonl", (".jsonl",))
    assert list(READERS["verl"].read(source, ReaderFacts(), rejected)) == []
    assert [each.reason for each in rejected] == ["the step took 0 s"]


def test_an_unknown_reader_is_refused_with_the_names_there_are():
    """A slip of the pen should cost one look."""
    with pytest.raises(InputError, match="nemo-rl") as caught:
        find_reader("nemorl")
    assert "nemo-rl" in caught.value.way_out


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("slime", "a.log", "perf 3: {1, 2}\n"),
        ("slime", "a.log", "perf 3: {[]: 1}\n"),
        ("slime", "a.log", f"perf {'9' * 5000}: {{'perf/step_time': 10}}\n"),
        ("slime", "a.log", f"perf 3: {{'perf/step_time': 1{'0' * 400}}}\n"),
        ("verl", "a.jsonl", f'{{"timing_s/step": 1{"0" * 400}}}\n'),
        ("vllm", "a.prom", "# scrape 1.2.3\nvllm:num_requests_running 1\n"),
        ("vllm", "a.prom", "# scrape .\nvllm:num_requests_running 1\n"),
        ("vllm", "a.prom", f"# scrape {'9' * 400}\nvllm:num_requests_running 1\n"),
    ],
)
def test_a_log_that_was_mangled_gives_nothing_and_ends_nothing(tmp_path, name, file, text):
    """Lines of many processes run into each other, and disks fill up."""
    (tmp_path / file).write_text(text)
    source = read_source(tmp_path / file, find_reader(name).endings)
    assert list(find_reader(name).read(source, ReaderFacts(), [])) == []


def test_json_with_a_number_of_thousands_of_digits_is_refused(tmp_path):
    """Python refuses to read it, with an error that is none of JSON's."""
    (tmp_path / "a.jsonl").write_text(f'{{"timing_s/step": 1{"0" * 5000}}}\n')
    source = read_source(tmp_path / "a.jsonl", (".jsonl",))
    with pytest.raises(ProfileError, match=r"a.jsonl:1: not valid JSON"):
        list(READERS["verl"].read(source, ReaderFacts(), []))

"""What lies under the paths a user names."""

from __future__ import annotations

import pytest

from libra_plan.errors import InputError
from libra_plan.planner.doctor.recordings import find


def test_samples_and_counts_are_told_apart_in_folders_of_folders(tmp_path):
    """A run's folder holds recordings of nodes, counts, and much else."""
    for name in (
        "node0/telemetry-000001.jsonl.gz",
        "node0/telemetry-000002.jsonl",
        "node1/telemetry-000001.jsonl",
        "work/work-t-actor-dp0.jsonl",
        "journal.jsonl",
        "manifest.json",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find([tmp_path, tmp_path / "node1"])
    assert found.samples == (tmp_path / "node0", tmp_path / "node1")
    assert found.work == (tmp_path / "work" / "work-t-actor-dp0.jsonl",)


def test_a_file_is_taken_for_what_its_name_says(tmp_path):
    """A part of samples, or a trainer's log under any name."""
    part, log = tmp_path / "telemetry-000001.jsonl", tmp_path / "verl.jsonl"
    part.touch()
    log.touch()
    found = find([part, log])
    assert (found.samples, found.work) == ((part,), (log,))


def test_a_path_that_is_not_there_is_named(tmp_path):
    """A typing error must not read as a healthy run."""
    with pytest.raises(InputError, match=r"telemtry.*no such recording"):
        find([tmp_path / "telemtry"])

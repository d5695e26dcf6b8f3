"""Recordings against profiles, as one call."""

from __future__ import annotations

import json

import pytest
from cli_run import train_task, write_workload

import libra_plan
from libra_plan.errors import InputError, WorkloadError
from libra_plan.models.corrections import read_corrections
from libra_plan.planner.explain.drift import drift


@pytest.fixture
def folder(tmp_path):
    """Write a folder with a task whose steps are measured places."""
    return write_workload(tmp_path / "work", [train_task("a", model="1.5b")])


def record(path, seconds, role="reward-model"):
    """Record steps of 16 sequences of 1024 tokens that take `seconds`."""
    now_s = [0.0]
    counter = libra_plan.counter(
        path, task="a", role=role, clock=lambda: now_s[0], utc=lambda: now_s[0] + 1.7e9, environment={}
    )
    counter.shape(16, 1024)
    for _ in range(200):
        now_s[0] += seconds
        counter.add(tokens=16 * 1024, samples=16, steps=1)
    counter.close()
    return path


def test_slower_steps_give_a_larger_factor_and_a_file(folder, tmp_path):
    """Twice the seconds are twice the factor; the file holds what was found."""
    slow, slower = (
        drift(folder, [record(tmp_path / f"{s}", s)], out=tmp_path / f"{s}.json") for s in (0.9, 1.8)
    )
    factors = [found.roles[0].correction.state.factor for found in (slow, slower)]
    assert factors[1] == pytest.approx(2 * factors[0], rel=1e-6)
    known, _ = read_corrections(tmp_path / "1.8.json")
    assert known.by_role["a", "reward-model"] == slower.roles[0].correction


def test_going_on_from_corrections_takes_no_window_twice(folder, tmp_path):
    """The command may be run by cron on the same folder."""
    telemetry = record(tmp_path / "telemetry", 0.9)
    first = drift(folder, [telemetry], out=tmp_path / "c.json")
    again = drift(folder, [telemetry], before=tmp_path / "c.json")
    assert first.roles[0].taken > 0
    assert again.roles[0].taken == 0
    assert again.roles[0].correction.state == first.roles[0].correction.state


def test_a_recording_of_no_role_of_the_workload_is_refused(folder, tmp_path):
    """A slip in the counter's role must not look like a run without drift."""
    with pytest.raises(InputError, match=r"no window is of a role.*a/reward-model"):
        drift(folder, [record(tmp_path / "telemetry", 0.9, role="critic")])


def test_a_folder_without_a_workload_is_refused(tmp_path):
    """Only the workload says which profile a role has."""
    with pytest.raises(WorkloadError, match=r"no workload\.yaml"):
        drift(tmp_path, [record(tmp_path / "telemetry", 0.9)])


def test_lines_that_were_left_out_are_returned(folder, tmp_path):
    """They are the user's to see, not to lose."""
    telemetry = record(tmp_path / "telemetry", 0.9)
    (part,) = telemetry.rglob("*.jsonl")
    lines = part.read_text().splitlines()
    broken = json.loads(lines[-1]) | {"steps": -5}
    part.write_text("\n".join([*lines[:-1], json.dumps(broken)]) + "\n")
    assert len(drift(folder, [telemetry]).left_out) == 1

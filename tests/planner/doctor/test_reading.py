"""What lies under the paths a user names, and which tasks were moved."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from loops import at, running_best, scaling, well, world

from libra_plan.errors import InputError, ProfileError
from libra_plan.planner.controller.hysteresis import ReplanPolicy
from libra_plan.planner.controller.reconcile import reconcile
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.controller.state import Move as Decided
from libra_plan.planner.controller.store import StateStore
from libra_plan.planner.doctor.reading import find_by_kind, moves_in
from libra_plan.planner.doctor.tracks import MovedTask


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
    samples, work = find_by_kind([tmp_path, tmp_path / "node1"])
    assert samples == [tmp_path / "node0", tmp_path / "node1"]
    assert work == [tmp_path / "work" / "work-t-actor-dp0.jsonl"]


def test_a_file_is_taken_for_what_its_name_says(tmp_path):
    """A part of samples, or a trainer's log under any name."""
    part, log = tmp_path / "telemetry-000001.jsonl", tmp_path / "verl.jsonl"
    part.touch()
    log.touch()
    samples, work = find_by_kind([part, log])
    assert (samples, work) == ([part], [log])


def test_a_path_that_is_not_there_is_named(tmp_path):
    """A typing error must not read as a healthy run."""
    with pytest.raises(InputError, match=r"telemtry.*no such recording"):
        find_by_kind([tmp_path / "telemtry"])


RECORD = {
    "schema_version": 1,
    "task": "t",
    "action": "resize",
    "gpu_class": "H200",
    "gpus_before": 4,
    "gpus_after": 8,
    "checkpoint_s": 1.0,
    "drain_s": 0.5,
    "save_s": 0.5,
    "stop_s": 2.0,
    "roles": [],
    "lost_s": 30.0,
    "at": "2023-11-14T22:13:20.000+00:00",
}


def store(folder, *records):
    """Write a store."""
    text = "".join(json.dumps(each) + "\n" for each in records)
    (folder / "switch_costs.jsonl").write_text(text, encoding="utf-8")


def test_moves_have_their_time_and_what_they_lost(tmp_path):
    """Both spellings of UTC are read, on every Python."""
    store(tmp_path, RECORD, {**RECORD, "at": "2023-11-14T22:13:21Z", "lost_s": None})
    first, second = moves_in(tmp_path)
    assert (first.task, first.at_s, first.lost_s) == ("t", 1.7e9, 30.0)
    assert (second.at_s, second.lost_s) == (1.7e9 + 1, None)


def test_no_store_is_not_no_moves(tmp_path):
    """Nobody recorded any: that is said."""
    assert moves_in(tmp_path) is None
    store(tmp_path)
    assert moves_in(tmp_path) == []


def test_without_a_supervisor_the_loops_record_tells_what_was_decided(tmp_path):
    """Under other launchers nobody measures moves, but the loop knows which plans it wrote."""
    problem = running_best(world(4, [scaling("a", 100.0, 0.7, 4)]))
    inputs = LoopInputs(problem, ReplanPolicy(), at(0), well(problem, at(0)))
    looked = reconcile(inputs, LoopState())
    moved = Decided("a", "grow", 2, 4, 1.0, 0.1, 0.2, 30.0)
    looked = replace(looked, decision=replace(looked.decision, moves=(moved,)))
    record = StateStore.open(tmp_path / "replan.db")
    for outcome in ("kept", "applied", "dry-run"):
        record.record(inputs, LoopState(), looked, outcome)
    record.close()
    assert moves_in(tmp_path) == [MovedTask("a", at(0).wall_s, "resize", 2, 4, None)]
    store(tmp_path, RECORD)
    assert [move.task for move in moves_in(tmp_path)] == ["t"]


@pytest.mark.parametrize("stamp", ["yesterday", "2023-11-14T22:13:20"])
def test_a_time_without_zone_is_refused(tmp_path, stamp):
    """Local times of another machine would lie beside the recording (A079)."""
    store(tmp_path, {**RECORD, "at": stamp})
    with pytest.raises(ProfileError, match=r"no time.*ISO 8601"):
        moves_in(tmp_path)

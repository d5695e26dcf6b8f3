"""Reading a folder, a cluster and the running plan into a priced problem."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cli_run import train_task, write_workload

import libra_plan as lp
from libra_plan.errors import InputError, WorkloadError
from libra_plan.planner.inputs.cluster import ClusterFlags
from libra_plan.planner.inputs.problem import (
    PricedProblem,
    PriceSettings,
    load,
    read_problem,
    with_workload,
)
from libra_plan.planner.problem import Problem
from libra_plan.profiles.switch_costs import STORE

EIGHT = PriceSettings(ClusterFlags(gpus=8))


@pytest.fixture
def folder(tmp_path):
    return write_workload(tmp_path / "work", [train_task("a")])


def test_a_priced_problem_is_a_problem_that_knows_its_folder(folder):
    """Manifests need the commands of the workload, records only the prices."""
    problem = read_problem(folder, EIGHT)
    assert isinstance(problem, PricedProblem)
    assert problem.folder.workload is not None
    assert type(problem.problem) is Problem
    assert problem.problem.tasks == problem.tasks
    assert replace(problem, horizon_s=1.0).folder is problem.folder


def test_a_folder_without_a_workload_is_refused(tmp_path):
    """There is nothing to plan."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(WorkloadError, match="nothing to plan"):
        read_problem(tmp_path / "empty", EIGHT)


def test_a_policy_that_is_not_there_is_refused_with_those_that_are(folder):
    """Names come from notebooks, too, where no flag checks them."""
    with pytest.raises(InputError, match=r"max-min.*did you mean `max-min`"):
        read_problem(folder, replace(EIGHT, policy="max_min"))


def test_another_workload_brings_its_profiles(folder):
    """A task that users add may name a profile that the folder did not read."""
    loaded = load(folder)
    added = load(write_workload(folder.parent / "more", [train_task("b", model="1.5b")])).workload
    assert added is not None
    both = with_workload(loaded, added)
    assert set(both.profiles) > set(loaded.profiles)


def test_moves_cost_what_was_recorded_and_are_named_among_the_inputs(folder):
    """A plan that cannot be traced to its inputs cannot be made again."""
    record = {
        "schema_version": 1, "task": "a", "action": "move", "gpu_class": "h200_sxm", "gpus_before": 1,
        "gpus_after": 1, "checkpoint_s": 5.0, "drain_s": 2.0, "save_s": 3.0, "stop_s": 1.0, "roles": [],
        "lost_s": 42.0, "at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    parent = lp.solve(folder, gpus=2).to_manifest()
    before = read_problem(folder, EIGHT, parent=parent)
    assert STORE not in before.input_digests
    (folder / STORE).write_text("".join(json.dumps(record) + "\n" for _ in range(6)), encoding="utf-8")
    said: list[str] = []
    after = read_problem(folder, EIGHT, parent=parent, notes=said.append)
    assert any("moving a is priced at 42 s" in line for line in said)
    assert after.input_digests[STORE].startswith("sha256:")
    assert after.running == before.running

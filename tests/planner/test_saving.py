"""From a plan to its manifest and back."""

from __future__ import annotations

import pytest
from cli_run import train_task, write_workload

import libra_plan as lp
from libra_plan.errors import ManifestError
from libra_plan.planner.inputs.price import read_running
from libra_plan.planner.inputs.problem import workload_of
from libra_plan.planner.launchers.document import placements_of
from libra_plan.planner.plan import held_by
from libra_plan.planner.saving import manifest_of, plan_in


@pytest.fixture
def folder(tmp_path):
    return write_workload(tmp_path / "work", [train_task("a")])


def test_a_manifest_holds_what_the_plan_holds(folder):
    """Launchers see nothing but the manifest."""
    plan = lp.solve(folder, gpus=2)
    manifest = manifest_of(plan, "lab")
    assert manifest.metadata.name == "lab"
    assert placements_of(manifest) == held_by(plan)
    assert workload_of(plan.known_problem) is not None
    assert workload_of(plan.known_problem.problem) is None


def test_a_plan_that_says_nothing_new_keeps_the_manifest(folder, tmp_path):
    """A generation costs every launcher a look."""
    first = lp.solve(folder, gpus=2).save(tmp_path / "run", name="lab")
    said: list[str] = []
    again = lp.solve(folder, gpus=2, running=tmp_path / "run").save(tmp_path / "run", notes=said.append)
    assert again == first
    assert said == [f"unchanged: {tmp_path / 'run' / 'manifest.json'} (generation 1)"]


def test_the_named_running_plan_counts_before_that_in_the_folder(folder, tmp_path):
    """`--from` is what the user says; a folder that holds another plan must not be overwritten then."""
    here, there = tmp_path / "here", tmp_path / "there"
    lp.solve(folder, gpus=2).save(here, name="here")
    lp.solve(folder, gpus=2).save(there, name="there")
    assert plan_in(here, lambda line: None) == read_running(here)
    assert plan_in(tmp_path / "nowhere", lambda line: None) is None
    with pytest.raises(ManifestError, match="stale"):
        lp.solve(folder, gpus=4, running=there, out=here)

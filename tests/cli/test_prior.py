"""`--allow-prior`: a model with too few points of its own leans on others, and the plan says so."""

from __future__ import annotations

import json

import pytest
from cli_run import train_task, write_workload


@pytest.fixture
def scarce(tmp_path):
    """Write a workload whose profile has three places only."""
    task = train_task(model="1.5b")
    task["roles"][0]["profiles"] = ["h200-qwen2.5-1.5b-train-ddp"]
    return write_workload(tmp_path / "scarce", [task])


def test_without_it_too_few_points_are_refused(call, scarce):
    """Nobody gets numbers of another model unasked."""
    ran = call("solve", scarce, "--gpus", 2)
    assert ran.code == 3
    assert "[refused]" in ran.err


def test_with_it_the_plan_stands_on_other_models_and_names_them(call, scarce):
    """`solve` took the option and never looked at another model; `profile predict` did."""
    ran = call("solve", scarce, "--gpus", 2, "--allow-prior", "--format", "json")
    assert ran.code == 0, ran.err
    (role,) = json.loads(ran.out)["spec"]["tasks"][0]["roles"]
    assert role["stageTime"]["origin"] == "assumed"
    told = call("explain", scarce, "--gpus", 2, "--allow-prior").out
    assert "is assumed from other models" in told

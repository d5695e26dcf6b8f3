"""What people read when there is no plan, why there is this one, and who searched for it."""

from __future__ import annotations

import json

import pytest
from cli_run import train_task, write_workload


@pytest.fixture
def two(tmp_path):
    """Write two training tasks, the heavier of which is held down by its own limit."""
    tasks = [train_task("light"), train_task("heavy", model="1.5b", weight=3.0)]
    tasks[1]["max_gpus"] = 1
    return write_workload(tmp_path / "two", tasks)


def test_no_plan_says_what_must_give_way(call, tmp_path):
    """Exit code 3 alone leaves people guessing which of their limits it was."""
    task = {**train_task("rm"), "min_gpus": 12}
    ran = call("solve", write_workload(tmp_path / "stuck", [task]), "--gpus", "8")
    assert ran.code == 3
    assert ran.out == ""
    line = ran.err.splitlines()[-1]
    assert "[limits] rm" in line
    assert "rm could run if you lower min_gpus of rm from 12 to 8" in line


def test_explain_names_the_limit_to_raise_and_the_next_best_plan(call, two):
    """The three questions after a plan: what would help, what was close, what is a GPU worth."""
    ran = call("explain", two, "--gpus", "4")
    assert ran.code == 0, ran.err
    assert "first raise max_gpus of heavy from 1 to 2: objective +" in ran.out
    assert "next-best plan: objective" in ran.out
    assert "LP price" in ran.out
    data = json.loads(call("explain", two, "--gpus", "4", "--format", "json").out)["explanation"]
    assert data["limits"][0]["limit"]["code"] == "task-max"
    assert data["next_best"]["loss"] >= 0
    assert data["cannot_run"] == []


def test_another_solver_is_named_in_the_proof(call, two):
    """A cross-check must show who made it, and agree."""
    lines = [
        next(
            line
            for line in call("solve", two, "--gpus", "4", "--solver", name).out.splitlines()
            if "gap" in line
        )
        for name in ("cp-sat", "highs")
    ]
    assert "cp-sat" in lines[0]
    assert "highs" in lines[1]
    assert lines[0].split(",")[0] == lines[1].split(",")[0]


def test_a_solver_that_cannot_repeat_itself_is_refused(call, two):
    """`--deterministic` is a promise that HiGHS cannot keep."""
    ran = call("solve", two, "--gpus", "4", "--solver", "highs", "--deterministic")
    assert ran.code == 2
    assert "allowed: cp-sat" in ran.err.splitlines()[-1]

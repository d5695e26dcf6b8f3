"""`solve`, `verify` and `explain` as programs call them."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace

import pytest
from cli_run import train_task, write_workload
from shipped_plan import shipped_plan

import libra_plan as lp
from libra_plan.errors import InputError, ManifestError, NoPlanError
from libra_plan.planner.plan import Certificate


@pytest.fixture
def folder(tmp_path):
    return write_workload(tmp_path / "work", [train_task("a"), train_task("b", model="1.5b", weight=2.0)])


def test_a_path_a_folder_and_a_problem_give_the_same_plan(folder):
    """Steps between may be looked at without changing the answer."""
    one = lp.solve(folder, gpus=4, deterministic=True)
    two = lp.solve(lp.load(folder), gpus=4, deterministic=True)
    three = lp.solve(lp.price(folder, gpus=4), deterministic=True)
    assert one == two == three
    assert one.known_problem == three.known_problem


def test_a_problem_takes_no_more_arguments_of_pricing(folder):
    """They would be ignored without a word."""
    problem = lp.price(folder, gpus=4)
    with pytest.raises(InputError, match=r"priced already; got gpus, policy, running"):
        lp.solve(problem, gpus=8, policy="max-min", running="x")
    assert lp.solve(problem, seed=3).running


def test_every_plan_is_verified(folder, monkeypatch):
    """A plan that breaks its own problem must never be seen."""
    from libra_plan.planner import solving

    solve_problem = solving.solve_problem

    def lying(*args, **more):
        result = solve_problem(*args, **more)
        proof = replace(result.plan.certificate, objective=9.9, bound=9.9)
        return replace(result, plan=replace(result.plan, certificate=proof))

    monkeypatch.setattr(solving, "solve_problem", lying)
    with pytest.raises(RuntimeError, match="breaks its own problem"):
        lp.solve(folder, gpus=4)


def test_verify_finds_what_is_wrong_with_a_changed_plan():
    """Whoever edits a plan learns what it breaks."""
    plan = shipped_plan()
    assert lp.verify(plan).violations == ()
    better = replace(
        plan.certificate, objective=plan.certificate.objective * 2, bound=plan.certificate.bound * 2
    )
    found = lp.verify(replace(plan, certificate=better)).violations
    assert "objective" in {each.code for each in found}
    with pytest.raises(InputError, match="does not know its problem"):
        lp.verify(replace(plan, problem=None))
    assert lp.verify(replace(plan, problem=None), plan.problem).violations == ()


def test_explain_covers_every_running_task():
    """A task that is left out seems to have no reason."""
    plan = shipped_plan()
    told = lp.explain(plan, time_limit_s=2.0)
    assert [each.task for each in told.tasks] == [running.task for running in plan.running]
    json.dumps(told.to_dict())
    with pytest.raises(InputError, match="no such solver"):
        lp.explain(plan, solver="gurobi")


def test_no_plan_says_what_must_give_way(tmp_path):
    """The exception is all that a program gets."""
    task = {**train_task("a"), "min_gpus": 64}
    with pytest.raises(NoPlanError, match="min_gpus"):
        lp.solve(write_workload(tmp_path / "w", [task]), gpus=2)


def test_the_manifest_in_the_output_folder_is_taken_as_running(folder, tmp_path):
    """Solving again must move nothing."""
    said: list[str] = []
    first = lp.solve(folder, gpus=4, out=tmp_path / "run", notes=said.append)
    again = lp.solve(folder, gpus=4, out=tmp_path / "run", notes=said.append)
    assert not any(running.moved for running in again.running)
    assert [line.partition(":")[0] for line in said if "manifest.json" in line] == [
        "written",
        f"planned from {tmp_path / 'run' / 'manifest.json'} (generation 1), taken as running; move it away "
        "or name another folder as out (--out) to start anew",
        "unchanged",
    ]
    assert again.to_manifest() == first.to_manifest()
    with pytest.raises(ManifestError, match="stale"):
        lp.solve(folder, gpus=2).save(tmp_path / "run")


def test_an_interrupter_ends_the_search(folder):
    """A program with a deadline of its own must not wait for ours."""
    interrupter = lp.Interrupter()
    timer = threading.Timer(0.2, interrupter.stop)
    timer.start()
    try:
        plan = lp.solve(folder, gpus=16, gap=0.0, time_limit_s=60.0, interrupter=interrupter)
    except lp.TimeLimitError:
        plan = None
    finally:
        timer.cancel()
    assert plan is None or lp.verify(plan).violations == ()


def test_a_plan_is_one_line_and_plain_data():
    """Both are for logs."""
    plan = shipped_plan()
    assert len(repr(plan)) < 120
    assert "\n" not in repr(plan)
    data = plan.to_dict()
    assert set(data) == {"running", "queued", "certificate", "joint", "proven_by"}
    assert json.loads(json.dumps(data))["certificate"]["objective"] == plan.certificate.objective
    assert isinstance(plan.certificate, Certificate)


@pytest.mark.parametrize(
    "wrong",
    [{"gap": value} for value in (float("nan"), float("inf"), -1.0, None, "x")]
    + [{"time_limit_s": value} for value in (float("nan"), -1.0, None, "1")]
    + [{"seed": value} for value in (-1, 2**70, 1.5, None)],
    ids=str,
)
def test_numbers_that_no_search_can_end_by_are_refused(folder, wrong):
    """A solver that gets them says `invalid model`, or searches as if there were no limit."""
    problem = lp.price(folder, gpus=4)
    with pytest.raises(InputError, match=next(iter(wrong))):
        lp.solve(problem, **wrong)


def test_results_are_shown_in_one_line(folder):
    """A prompt that answers with ten screens hides what was asked."""
    loaded = lp.load(folder)
    problem = lp.price(loaded, gpus=4)
    plan = lp.solve(problem)
    assert repr(loaded) == f"ProfilesFolder({str(folder)!r}: 2 tasks, {len(loaded.profiles)} profiles)"
    assert re.fullmatch(
        r"PricedProblem\(2 tasks on 4 GPUs, \d+ priced options, policy throughput\)", repr(problem)
    )
    explanation = repr(lp.explain(plan))
    assert re.fullmatch(r"Explanation\(\d running tasks?, \d waiting, \d+ limits? with a gain\)", explanation)
    alone = replace(plan, running=plan.running[:1])
    assert repr(alone).startswith("Plan(optimal: 1 task on ")

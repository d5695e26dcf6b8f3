"""What `explain` says of a task must be what its plan shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libra_plan.planner.explain import explain_plan
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Arrangement, Coupling, CouplingKind, Problem
from libra_plan.planner.tables import table_cluster, table_task

AHEAD = Coupling(CouplingKind.ASYNC, staleness=1)


def test_an_overlapping_role_takes_the_whole_step() -> None:
    """Async pools overlap: the slower one is the step, not half of it."""
    seconds = {gpus: 40.0 / gpus for gpus in (1, 2)}
    task = table_task("t", 1.0, {"rollout": seconds, "train": {1: 20.0}}, AHEAD)
    problem = Problem(table_cluster(3), (task,))
    explained = explain_plan(problem, solve_problem(problem).require_plan()).tasks[0]
    assert explained.share == pytest.approx(1.0)


def test_gpus_bind_when_the_cluster_has_no_more() -> None:
    """With every GPU in use, 'no layout is faster' would send people to measure in vain."""
    problem = Problem(
        table_cluster(4), (table_task("t", 1.0, {"train": {g: 8.0 / g for g in (1, 2, 3, 4)}}),)
    )
    explained = explain_plan(problem, solve_problem(problem).require_plan()).tasks[0]
    assert explained.binding == "GPUs: the cluster has no more than 4"


def test_a_tie_is_called_a_tie() -> None:
    """'would be worth 1.000 instead of 1.000' is no reason."""
    tasks = tuple(table_task(name, 1.0, {"train": {1: 5.0}}) for name in ("a", "b"))
    plan = solve_problem(Problem(table_cluster(1), tasks)).require_plan()
    assert "tie" in plan.queued[0].reason


def test_a_bound_on_staleness_that_sets_the_pace_is_named() -> None:
    """With three pools in a row and two steps on their way, no pool is to blame: the bound is."""
    task = table_task("t", 1.0, {name: {1: 10.0} for name in ("rollout", "score", "train")}, AHEAD)
    problem = Problem(table_cluster(3), (replace(task, arrangements=frozenset({Arrangement.SEPARATE})),))
    plan = solve_problem(problem).require_plan()
    assert plan.running[0].configuration.step_time_s.value == pytest.approx(15.0)
    said = explain_plan(problem, plan).tasks[0].notes[0]
    assert said.startswith("staleness_steps 1 sets the pace")
    assert "takes 15.0 s, with one more 10.0 s; the slowest pool takes 10.0 s" in said

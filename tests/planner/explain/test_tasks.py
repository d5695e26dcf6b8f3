"""What `explain` says of a task must be what its plan shows."""

from __future__ import annotations

import pytest

from libra_plan.planner.explain import explain
from libra_plan.planner.problem import Coupling, CouplingKind, Problem
from libra_plan.planner.solvers.solve import solve
from libra_plan.planner.tables import table_cluster, table_task


def test_an_overlapping_role_takes_the_whole_step() -> None:
    """Async pools overlap: the slower one is the step, not half of it."""
    seconds = {gpus: 40.0 / gpus for gpus in (1, 2)}
    coupling = Coupling(CouplingKind.ASYNC, staleness=1)
    task = table_task("t", 1.0, {"rollout": seconds, "train": {1: 20.0}}, coupling)
    problem = Problem(table_cluster(3), (task,))
    explained = explain(problem, solve(problem).require_plan()).tasks[0]
    assert explained.share == pytest.approx(1.0)


def test_gpus_bind_when_the_cluster_has_no_more() -> None:
    """With every GPU in use, 'no layout is faster' would send people to measure in vain."""
    problem = Problem(
        table_cluster(4), (table_task("t", 1.0, {"train": {g: 8.0 / g for g in (1, 2, 3, 4)}}),)
    )
    explained = explain(problem, solve(problem).require_plan()).tasks[0]
    assert explained.binding == "GPUs: the cluster has no more than 4"


def test_a_tie_is_called_a_tie() -> None:
    """'would be worth 1.000 instead of 1.000' is no reason."""
    tasks = tuple(table_task(name, 1.0, {"train": {1: 5.0}}) for name in ("a", "b"))
    plan = solve(Problem(table_cluster(1), tasks)).require_plan()
    assert "tie" in plan.queued[0].reason

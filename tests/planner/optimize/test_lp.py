"""The LP bound must be there beside CP-SAT, and silent."""

from __future__ import annotations

import subprocess
import sys

from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Problem
from libra_plan.planner.tables import table_cluster, table_task


def _problem() -> Problem:
    tasks = tuple(
        table_task(f"t{n}", 1.0, {"train": {g: 10.0 / g**0.9 for g in range(1, 5)}}) for n in range(2)
    )
    return Problem(table_cluster(6), tasks)


def test_both_bounds_are_reported() -> None:
    """HiGHS and OR-Tools have clashed in one process before: then the LP bound silently vanished."""
    plan = solve_problem(_problem()).require_plan()
    bounds = dict(plan.certificate.bounds)
    assert set(bounds) == {"lp", "cp-sat"}
    assert plan.certificate.bound == min(bounds.values())
    assert plan.certificate.objective <= plan.certificate.bound


def test_solving_prints_nothing() -> None:
    """Results go to stdout: a solver's banner there would break every script."""
    code = (
        "from libra_plan.planner.tables import table_cluster, table_task\n"
        "from libra_plan.planner.problem import Problem\n"
        "from libra_plan.planner.optimize.solve import solve\n"
        "t = table_task('t', 1.0, {'train': {1: 10.0, 2: 6.0}})\n"
        "assert solve(Problem(table_cluster(2), (t,))).plan is not None\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")

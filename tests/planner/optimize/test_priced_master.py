"""The arrays of priced tasks: the same constraints and values as those of built candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_problems import random_problem, with_running

from libra_plan.planner.optimize.constraints import base_constraints
from libra_plan.planner.optimize.objective import priced_tasks
from libra_plan.planner.optimize.priced_master import master_of_priced
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Problem, Role
from libra_plan.planner.tables import TABLE_CLASS, table_cluster, table_task


def test_demands_by_hand() -> None:
    """Replicas of 2 GPUs on nodes of 3: blocks of 2 have 4 GPUs, which is tighter than all 6."""
    task = table_task("a", 1.0, {"r": {2: 4.0, 4: 2.0}}, replica_gpus={"r": 2})
    (role,) = task.roles
    env = Role("env", "env", cpu_workers=1, cpu_cores=3.0, host_memory_mib=7.0)
    task = replace(task, roles=(replace(role, cpu_cores_per_gpu=1.5), env))
    problem = Problem(table_cluster(6, 3), (task,))
    (priced,) = priced_tasks(problem, problem)
    master = master_of_priced([priced], problem.cluster)
    limits = dict(zip(master.names, master.limit.tolist(), strict=True))
    assert (limits[f"gpus:{TABLE_CLASS}:1"], limits[f"gpus:{TABLE_CLASS}:2"]) == (6.0, 4.0)
    columns = {name: at for at, name in enumerate(master.names)}
    demand = master.demand(0, len(priced))
    for number in range(len(priced)):
        gpus = priced.table.configuration(number).gpus
        assert demand[number, columns[f"gpus:{TABLE_CLASS}:2"]] == gpus
        assert demand[number, columns["cpu-cores"]] == 1.5 * gpus + 3.0
        assert demand[number, columns["host-memory"]] == 7.0


def _agrees(problem: Problem) -> int:
    """Compare demands and values with those of built candidates; return the placements that are kept."""
    priced = priced_tasks(problem, problem)
    master = master_of_priced(priced, problem.cluster)
    tasks = [each.candidates(range(len(each))) for each in priced]
    rows = {row.name: row for row in base_constraints(tasks, problem.cluster)}
    for at, name in enumerate(master.names):
        if name.startswith("gpus:") and name not in rows:
            continue  # a size that only configurations which were dropped have
        wanted = np.zeros(len(master.value))
        for (t, c), amount in rows[name].coefficients.items() if name in rows else ():
            wanted[master.first[t] + c] = amount
        assert master.demand(0, len(master.value))[:, at] == pytest.approx(wanted)
        assert name not in rows or master.limit[at] == rows[name].limit
    values = [entry.value for each in tasks for entry in each.candidates]
    assert master.value == pytest.approx(np.array(values))
    return sum(len(each.held) for each in priced)


@pytest.mark.parametrize("first", [0, 12])
def test_they_are_those_of_built_candidates(first: int) -> None:
    """Random problems, with a running plan too; what a placement keeps is among them."""
    kept = 0
    for seed in range(first, first + 12):
        problem = random_problem(seed)
        kept += _agrees(problem)
        plan = solve_problem(problem).plan
        if plan is not None:
            kept += _agrees(with_running(problem, plan, seed))
    assert kept >= 3

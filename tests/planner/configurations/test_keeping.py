"""Configurations kept on disk: the same as those made anew, or none at all."""

from __future__ import annotations

import ast
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from random_problems import random_problem

from libra_plan.planner.configurations import keeping
from libra_plan.planner.configurations.capacity import capacities
from libra_plan.planner.configurations.generate import configurations_of
from libra_plan.planner.configurations.keeping import (
    ConfigurationFolder,
    code_files,
    configuration_key,
    dump_configurations,
    load_configurations,
)
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Problem
from libra_plan.planner.tables import table_cluster, table_task

TABLES = {"a": {n: 60.0 / n**0.9 for n in range(1, 9)}, "b": {n: 40.0 / n**0.8 for n in range(1, 9)}}


def _problem(tasks: int = 5, gpus: int = 24) -> Problem:
    made = tuple(
        table_task(f"t{n}", 1.0 + n % 3, {**TABLES, "c": {1: 10.0 + n, 2: 6.0 + n}}) for n in range(tasks)
    )
    return Problem(table_cluster(gpus, 8), made)


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_what_is_read_is_what_was_made(first: int) -> None:
    """Bit for bit, whatever binds: a solve from kept configurations must be the solve there would have been."""
    for seed in range(first, first + 40):
        problem = random_problem(seed)
        rooms = capacities(problem.cluster)
        for task in problem.tasks:
            key = configuration_key(task, rooms, hosts_bind=True)
            if key is None:
                continue
            made = configurations_of(task, problem.cluster)
            assert load_configurations(dump_configurations(key, made), key, task, rooms) == made, seed


@pytest.mark.parametrize("seed", range(30))
def test_a_key_stands_for_the_same_configurations(seed: int) -> None:
    """Where a larger or smaller cluster has the same key, it has the same configurations."""
    problem = random_problem(seed)
    for task in problem.tasks:
        key = configuration_key(task, capacities(problem.cluster), hosts_bind=False)
        for nodes in range(1, len(problem.cluster.nodes) + 4):
            nodes_now = (problem.cluster.nodes * 4)[:nodes]
            named = tuple(replace(node, id=f"m{n}", gpus=tuple(
                replace(gpu, id=replace(gpu.id, node=f"m{n}")) for gpu in node.gpus
            )) for n, node in enumerate(nodes_now))  # fmt: skip
            cluster = replace(problem.cluster, nodes=named)
            if key is None or configuration_key(task, capacities(cluster), hosts_bind=False) != key:
                continue
            ours = configurations_of(task, problem.cluster, hosts_bind=False)
            assert configurations_of(task, cluster, hosts_bind=False) == ours


def test_a_solve_from_kept_configurations_is_the_solve_without(tmp_path: Path) -> None:
    """Same plan, objective and bound; and of a changed workload only the changed task is weighed anew."""
    problem = _problem()
    params = SolveParams(gap=1e-6, deterministic=True)
    cold = solve_problem(problem, params).require_plan()
    for found, made in ((0, 5), (5, 0)):
        folder = ConfigurationFolder(tmp_path / "configurations", 10.0)
        assert solve_problem(problem, replace(params, configurations=folder)).require_plan() == cold
        assert (folder.found, folder.made, folder.notes) == (found, made, [])
    tables = {**TABLES, "c": {1: 99.0, 2: 50.0}}
    changed = replace(problem, tasks=(*problem.tasks[:-1], table_task("t4", 2.0, tables)))
    folder = ConfigurationFolder(tmp_path / "configurations", 10.0)
    plan = solve_problem(changed, replace(params, configurations=folder)).require_plan()
    assert (folder.found, folder.made) == (4, 1)
    assert plan == solve_problem(changed, params).require_plan()


def test_a_lost_node_changes_no_key_that_it_could_not_matter_to(tmp_path: Path) -> None:
    """On a large cluster a failure must not make every task's configurations anew; weights and names never do."""
    problem = _problem(gpus=400)
    solve_problem(problem, SolveParams(configurations=ConfigurationFolder(tmp_path, 10.0)))
    fewer = replace(problem, cluster=table_cluster(392, 8))
    fewer = replace(fewer, tasks=tuple(replace(each, id=f"x{each.id}", weight=7.0) for each in fewer.tasks))
    folder = ConfigurationFolder(tmp_path, 10.0)
    solve_problem(fewer, SolveParams(configurations=folder))
    assert (folder.found, folder.made) == (5, 0)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "another task", "not JSON"])
def test_damaged_configurations_are_told_and_made_anew(damage: str, tmp_path: Path) -> None:
    """Nothing that is read is believed without its digest, nor beyond the options the task has now."""
    problem = _problem(1)
    params = SolveParams(gap=1e-6)
    solve_problem(problem, replace(params, configurations=ConfigurationFolder(tmp_path, 10.0)))
    (entry,) = tmp_path.iterdir()
    data = entry.read_bytes()
    other = configurations_of(table_task("o", 1.0, {"a": {64: 1.0}, "z": {32: 1.0}}), table_cluster(256, 64))
    entry.write_bytes(
        {
            "cut": data[:-20],
            "flipped": data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
            "empty": b"",
            "another task": dump_configurations("other", other),
            "not JSON": hashlib.sha256(f"{entry.stem}{{".encode()).hexdigest().encode() + b"\n{",
        }[damage]
    )
    folder = ConfigurationFolder(tmp_path, 10.0)
    plan = solve_problem(problem, replace(params, configurations=folder)).require_plan()
    assert plan == solve_problem(problem, params).require_plan()
    assert (folder.found, folder.made) == (0, 1)
    assert str(entry) in folder.notes[0]
    again = ConfigurationFolder(tmp_path, 10.0)
    solve_problem(problem, replace(params, configurations=again))
    assert (again.found, again.notes) == (1, [])


def test_the_folder_stays_within_its_size(tmp_path: Path) -> None:
    """What was used last stays; a folder nobody may write costs the time it would have saved, no more."""
    problem = _problem()
    folder = ConfigurationFolder(tmp_path, 10.0)
    solve_problem(problem, SolveParams(configurations=folder))
    files = sorted(tmp_path.iterdir())
    for age, path in enumerate(files):
        os.utime(path, (1000.0 - age, 1000.0 - age))
    solve_problem(replace(problem, tasks=problem.tasks[:1]), SolveParams(configurations=folder))
    (used,) = [path for path in files if path.stat().st_mtime > 1000.0]
    folder.most_mib = 1.5 * max(path.stat().st_size for path in files) / 2**20
    folder.trim()
    assert list(tmp_path.iterdir()) == [used]
    nowhere = ConfigurationFolder(Path("/proc/nowhere"), 10.0)
    assert solve_problem(problem, SolveParams(configurations=nowhere)).plan is not None


def test_a_key_stands_for_all_code_that_configurations_come_from() -> None:
    """After an update of any of it, configurations of the old code must not be found: none is as good as its key."""
    known = {file.resolve() for file in code_files()}
    package = Path(keeping.__file__).parent.parent.parent
    configurations = [file for file in known if file.parent.name == "configurations"]
    called = {
        node.module
        for file in configurations
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("libra_plan.")
    }
    files = {package.joinpath(*name.split(".")[1:]).with_suffix(".py").resolve() for name in called}
    assert len(files) > 10
    assert {file for file in files if file.is_file()} <= known

"""What each constraint of the master takes and allows, by numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from random_problems import random_problem

from libra_plan.errors import ClusterError
from libra_plan.planner.optimize.baselines import keeps_all
from libra_plan.planner.optimize.constraints import (
    CUT,
    Constraint,
    base_constraints,
    budget_constraint,
    cut,
    level_floor,
    must_run,
    no_good,
    no_host_room,
    run_in,
    value_floor,
)
from libra_plan.planner.optimize.objective import TaskCandidates, candidates_of, plan_value
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import Problem, Role, Task
from libra_plan.planner.tables import TABLE_CLASS, table_cluster, table_task

SECONDS = {1: 8.0, 2: 4.0, 4: 2.0}


def _problem(*tasks: Task, gpus: int = 8, per_node: int = 4) -> Problem:
    return Problem(table_cluster(gpus, per_node), tasks)


def _plain(name: str = "a") -> Task:
    return table_task(name, 1.0, {"r": SECONDS})


def _by_name(rows: list[Constraint]) -> dict[str, Constraint]:
    return {row.name: row for row in rows}


def _gpus(each: TaskCandidates) -> list[int]:
    return [entry.configuration.gpus for entry in each.candidates]


def _at(each: TaskCandidates, gpus: int) -> int:
    return _gpus(each).index(gpus)


def _with_hosts(problem: Problem, cores: float, host_mib: float = 1e6) -> Problem:
    nodes = tuple(replace(node, cpu_cores=cores, host_memory_mib=host_mib) for node in problem.cluster.nodes)
    return replace(problem, cluster=replace(problem.cluster, nodes=nodes))


# ---------------------------------------------------------------- the cluster


def test_blocks_of_a_size_are_limited_by_the_nodes_that_hold_them() -> None:
    """Two nodes of 3 GPUs hold 6 GPUs, but two blocks of 2 and none of 4."""
    task = table_task("a", 1.0, {"r": SECONDS}, replica_gpus={"r": 2})
    problem = _problem(task, _plain("b"), gpus=6, per_node=3)
    tasks = candidates_of(problem, problem)
    rows = _by_name(base_constraints(tasks, problem.cluster))
    assert rows[f"gpus:{TABLE_CLASS}:1"].limit == 6.0
    assert rows[f"gpus:{TABLE_CLASS}:2"].limit == 4.0
    pair = rows[f"gpus:{TABLE_CLASS}:2"].coefficients
    for c, entry in enumerate(tasks[0].candidates):
        assert pair[0, c] == entry.configuration.gpus
    assert not any(t == 1 for t, _ in pair)  # single GPUs go anywhere
    singles = rows[f"gpus:{TABLE_CLASS}:1"].coefficients
    assert all(singles[1, c] == gpus for c, gpus in enumerate(_gpus(tasks[1])))


def test_each_task_runs_once() -> None:
    """Its constraint counts all of its configurations and no other task's."""
    problem = _problem(_plain(), _plain("b"))
    tasks = candidates_of(problem, problem)
    row = _by_name(base_constraints(tasks, problem.cluster))["one:b"]
    assert row.limit == 1.0
    assert row.coefficients == {(1, c): 1.0 for c in range(len(tasks[1].candidates))}


def test_cores_and_memory_count_gpus_and_workers() -> None:
    """2 cores a GPU and 3 for the environment: 4 GPUs take 11 of the 20 that both nodes have."""
    task = _plain()
    (role,) = task.roles
    role = replace(role, cpu_cores_per_gpu=2.0, host_memory_mib_per_gpu=10.0)
    env = Role("env", "env", cpu_workers=2, cpu_cores=3.0, host_memory_mib=5.0)
    problem = _with_hosts(_problem(replace(task, roles=(role, env))), 10.0, 100.0)
    tasks = candidates_of(problem, problem)
    rows = _by_name(base_constraints(tasks, problem.cluster))
    four = (0, _at(tasks[0], 4))
    assert (rows["cpu-cores"].limit, rows["cpu-cores"].coefficients[four]) == (20.0, 11.0)
    assert (rows["host-memory"].limit, rows["host-memory"].coefficients[four]) == (200.0, 45.0)


def test_what_nobody_needs_has_no_constraint() -> None:
    """Nodes that do not say how many cores they have hold tasks that need none."""
    problem = _problem(_plain())
    names = _by_name(base_constraints(candidates_of(problem, problem), problem.cluster))
    assert {"cpu-cores", "host-memory"}.isdisjoint(names)


def test_a_kept_placement_takes_the_gpus_that_it_lies_on() -> None:
    """Two single GPUs on two nodes break both blocks of 4, which a moved configuration would not."""
    problem = _problem(_plain(), gpus=8, per_node=4)
    two = replace(problem, tasks=(table_task("a", 1.0, {"r": {2: 4.0}}),))
    (running,) = held_by(solve_problem(two).require_plan())
    (role,) = running.roles
    apart = tuple(((problem.cluster.nodes[n].gpus[0].id),) for n in (0, 1))
    running = replace(running, roles=(replace(role, replicas=apart),))
    wide = table_task("b", 1.0, {"r": {4: 2.0}}, replica_gpus={"r": 4})
    both = replace(two, tasks=(*two.tasks, wide), running=(running,))
    tasks = candidates_of(both, both)
    fours = _by_name(base_constraints(tasks, both.cluster))[f"gpus:{TABLE_CLASS}:4"]
    kept = next(c for c, entry in enumerate(tasks[0].candidates) if entry.held)
    moved = next(c for c, entry in enumerate(tasks[0].candidates) if not entry.held)
    assert fours.limit == 8.0
    assert (0, moved) not in fours.coefficients
    assert tasks[0].candidates[kept].gpus_in_blocks(TABLE_CLASS, 1, 4) == 2


@pytest.mark.parametrize("seed", range(6))
def test_every_solved_plan_keeps_them(seed: int) -> None:
    """They are necessary: none cuts off what was placed and verified."""
    problem = random_problem(seed)
    tasks = candidates_of(problem, problem)
    plan = solve_problem(problem).plan
    if plan is None:
        return
    numbers = {each.task.id: t for t, each in enumerate(tasks)}
    choice = {}
    for run in plan.running:
        t = numbers[run.task]
        phases = [entry.configuration.phases for entry in tasks[t].candidates]
        choice[t] = phases.index(run.configuration.phases)
    assert keeps_all(base_constraints(tasks, problem.cluster), choice)


# ---------------------------------------------------------------- demands


def test_demands_are_kept_by_those_choices_only() -> None:
    """Every choice of two tasks against what each demand says in words."""
    problem = _problem(_plain(), _plain("b"))
    tasks = candidates_of(problem, problem)
    ways = [None, *range(len(tasks[0].candidates))]
    level = tasks[0].candidates[_at(tasks[0], 2)].normalised
    same = {0: 0, 1: 1}
    for way in product(ways, repeat=2):
        choice = {t: c for t, c in enumerate(way) if c is not None}
        reached = [tasks[t].candidates[c].normalised for t, c in choice.items()]
        worth = plan_value(tasks, choice)
        assert keeps_all([must_run("x", tasks, 1)], choice) == (1 in choice)
        assert keeps_all([run_in("x", 0, (0, 2))], choice) == (choice.get(0) in (0, 2))
        assert keeps_all([no_good(tasks, same)], choice) == (choice != same)
        assert keeps_all([level_floor(tasks, level, 2)], choice) == (sum(r >= level for r in reached) >= 2)
        assert keeps_all([value_floor(tasks, 3.0)], choice) == (worth >= 3.0 - 1e-9)


def test_another_way_than_a_plan_is_not_that_plan_moved() -> None:
    """Keeping the GPUs and having the same configuration elsewhere are one way to run."""
    problem = _problem(_plain())
    plan = solve_problem(problem).require_plan()
    running = replace(problem, running=held_by(plan))
    tasks = candidates_of(running, running)
    kept = next(c for c, entry in enumerate(tasks[0].candidates) if entry.held)
    row = no_good(tasks, {0: kept})
    phases = tasks[0].candidates[kept].configuration.phases
    for c, entry in enumerate(tasks[0].candidates):
        assert keeps_all([row], {0: c}) == (entry.configuration.phases != phases)
    assert keeps_all([row], {})


# ---------------------------------------------------------------- cuts


def test_a_cut_forbids_the_conflict_and_what_needs_more() -> None:
    """Of two tasks that cannot have 2 GPUs each, neither can have 4 beside the other's 2; 1 may do."""
    problem = _problem(_plain(), _plain("b"))
    tasks = candidates_of(problem, problem)
    one, two, four = (_at(tasks[0], gpus) for gpus in (1, 2, 4))
    row = cut(tasks, {0: two, 1: two}, problem.cluster)
    assert row.name == CUT
    assert row.limit == 1.0
    assert not keeps_all([row], {0: two, 1: two})
    assert not keeps_all([row], {0: four, 1: two})
    assert keeps_all([row], {0: one, 1: two})
    assert keeps_all([row], {0: two})


def test_a_cut_of_pinned_gpus_forbids_the_conflict_alone() -> None:
    """Other configurations of the task need other GPUs, not more of the same."""
    task = _plain()
    problem = _problem(task)
    gone = problem.cluster.nodes[1].gpus[3].id
    (role,) = task.roles
    problem = replace(
        problem, tasks=(replace(task, roles=(replace(role, excluded_gpus=frozenset({gone})),)),)
    )
    tasks = candidates_of(problem, problem)
    row = cut(tasks, {0: _at(tasks[0], 1)}, problem.cluster)
    assert row.coefficients == {(0, _at(tasks[0], 1)): 1.0}


# ---------------------------------------------------------------- budget and hosts


def test_the_budget_counts_every_gpu() -> None:
    """At 2.5 a GPU an hour, 4 GPUs take 10, and the constraint is strict."""
    problem = _problem(_plain())
    tasks = candidates_of(problem, problem)
    with pytest.raises(ClusterError, match="no price for table"):
        budget_constraint(tasks, problem.cluster, 9.0)
    priced = replace(problem.cluster, price_per_gpu_hour=((TABLE_CLASS, 2.5),))
    row = budget_constraint(tasks, priced, 9.0)
    assert row.coefficients[0, _at(tasks[0], 4)] == 10.0
    assert (row.limit, row.strict, row.code) == (9.0, True, "budget")


def test_blocks_that_too_few_nodes_have_the_cores_for_are_forbidden() -> None:
    """Blocks of 2 GPUs with 6 cores each: nodes with 10 cores hold one each, so 4 GPUs fit and 6 do not."""
    task = table_task("a", 1.0, {"r": {2: 4.0, 4: 2.0, 6: 1.0}}, replica_gpus={"r": 2})
    (role,) = task.roles
    task = replace(task, roles=(replace(role, cpu_cores_per_gpu=3.0),))
    problem = _with_hosts(_problem(task), 10.0)
    tasks = candidates_of(problem, problem)
    row = no_host_room(tasks, problem.cluster)
    assert row is not None
    assert row.limit == 0.0
    assert row.coefficients == {(0, _at(tasks[0], 6)): 1.0}
    assert no_host_room(tasks, _with_hosts(problem, 12.0).cluster) is None


def test_a_task_whose_workers_fit_nowhere_has_no_candidate_left() -> None:
    """Three workers of 4 cores: a node of 11 cores holds two of them."""
    env = Role("env", "env", cpu_workers=3, cpu_cores=12.0)
    task = _plain()
    problem = _problem(replace(task, roles=(*task.roles, env)), gpus=4)
    tasks = candidates_of(problem, problem)
    row = no_host_room(tasks, _with_hosts(problem, 11.0).cluster)
    assert row is not None
    assert len(row.coefficients) == len(tasks[0].candidates)
    assert no_host_room(tasks, _with_hosts(problem, 12.0).cluster) is None

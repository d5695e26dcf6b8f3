"""What must give way when a task cannot run: enough, no more than needed, and in the user's words."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from random_problems import random_problem

from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.explain import CannotRun, Relaxation, cannot_run, relaxed, runs_alone
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Arrangement, Problem, Role, Task
from libra_plan.planner.tables import TABLE_CLASS, pipelined, table_cluster, table_role, table_task
from libra_plan.planner.verify import violations_of


def stuck(first: int, last: int) -> list[tuple[int, Problem, Task]]:
    drawn = [(seed, random_problem(seed)) for seed in range(first, last)]
    found = [(seed, problem, task) for seed, problem in drawn for task in problem.tasks]
    return [each for each in found if not runs_alone(each[1], each[2])]


@cache
def answered(first: int, last: int) -> list[tuple[int, Problem, Task, CannotRun]]:
    """Ask once what several tests look at."""
    return [(seed, problem, task, cannot_run(problem, task)) for seed, problem, task in stuck(first, last)]


def alone(problem: Problem, task: Task, relaxations: tuple[Relaxation, ...]) -> Problem:
    return relaxed(replace(problem, tasks=(task,)), relaxations)


def test_every_way_lets_the_task_run() -> None:
    """Advice that does not help, once followed, is worse than none; and people read the first."""
    cases = answered(0, 28)
    assert len(cases) > 15
    for seed, problem, task, told in cases:
        assert told.ways, f"{seed}: {told.text}"
        for way in told.ways:
            changed = alone(problem, task, way.relaxations)
            plan = solve_problem(changed).plan
            assert plan is not None, f"{seed}: {told.text}"
            assert violations_of(changed, plan) == []
        assert [way.total for way in told.ways] == sorted(way.total for way in told.ways)
        limits = [{(each.code, each.subject) for each in way.relaxations} for way in told.ways]
        assert not any(one <= other for at, one in enumerate(limits) for other in limits[at + 1 :])


def smaller(each: Relaxation) -> Relaxation | None:
    """Relax by one step less; None when that would be nothing."""
    if each.code in ("task-max", "role-max", "cpu-cores", "host-memory"):
        step = each.needed - 1.0
        return replace(each, needed=step) if step > (each.now or 0.0) else None
    if each.code == "gpus":
        return replace(each, needed=each.needed - 1.0) if each.needed > 1.0 else None
    if each.code == "memory":
        return replace(each, needed=each.needed - 0.01)
    return replace(each, needed=each.needed + 1.0) if each.code.endswith("-min") else None


def test_no_limit_gives_way_further_than_needed() -> None:
    """With any one limit relaxed a step less, or not at all, the task must still be unable to run."""
    checked = 0
    for seed, problem, task in stuck(40, 75):
        told = cannot_run(problem, task)
        assert told.proven
        for number, each in enumerate(told.ways[0].relaxations if told.ways else ()):
            rest = [*told.ways[0].relaxations]
            less = smaller(each)
            rest[number : number + 1] = [] if less is None else [less]
            assert solve_problem(alone(problem, task, tuple(rest))).plan is None, (
                f"{seed}: {each.text} is too much"
            )
            checked += 1
    assert checked > 20


def test_when_time_is_up_there_is_still_a_way_and_it_is_not_called_the_least() -> None:
    """A message that names no way out helps nobody, and one that took minutes comes too late."""
    checked = 0
    for _, problem, task, least in answered(0, 28):
        hasty = cannot_run(problem, task, lambda: False)
        assert bool(hasty.ways) == bool(least.ways)
        if hasty.ways:
            assert not hasty.proven
            assert hasty.ways[0].total >= least.ways[0].total - 1e-9
            changed = relaxed(replace(problem, tasks=(task,)), hasty.ways[0].relaxations)
            assert runs_alone(changed, changed.tasks[0])
            checked += 1
    assert checked > 5


# ---------------------------------------------------------------- one limit at a time, by hand


def told(problem: Problem) -> tuple[str, str]:
    result = cannot_run(problem, problem.tasks[0])
    return "+".join(each.code for each in result.ways[0].relaxations), result.text


def one(role: Role, **more: object) -> Task:
    return Task("t", 1.0, (role,), pipelined(1), frozenset(Arrangement), **more)  # type: ignore[arg-type]


def test_the_maximum_of_a_task_is_named() -> None:
    """The commonest slip: a limit below the smallest form."""
    task = table_task("t", 1.0, {"train": {4: 9.0, 8: 5.0}}, max_gpus=2)
    code, text = told(Problem(table_cluster(8), (task,)))
    assert code == "task-max"
    assert text.startswith("t could run if you raise max_gpus of t from 2 to 4")


def test_memory_is_named_with_what_is_needed() -> None:
    """The figure tells whether a smaller batch may do or another GPU is needed."""
    role = table_role("train", {1: 9.0}, peak_mib=1.25)
    code, text = told(Problem(table_cluster(8), (one(role),)))
    assert code == "memory"
    assert "use table GPUs with 1.2 MiB instead of 1" in text


def test_missing_gpus_are_counted_in_blocks() -> None:
    """A replica of four GPUs is not helped by four GPUs on four nodes."""
    task = table_task("t", 1.0, {"train": {8: 9.0}}, replica_gpus={"train": 4})
    code, text = told(Problem(table_cluster(6, 2), (task,)))
    assert code == "gpus"
    assert "add 1 block of 4 free GPUs of class table" in text


def test_nodes_too_small_for_any_number_of_them_are_named() -> None:
    """A replica of three GPUs never fits nodes of two, however many there are."""
    task = table_task("t", 1.0, {"train": {3: 9.0}}, replica_gpus={"train": 3})
    code, text = told(Problem(table_cluster(8, 2), (task,)))
    assert code == "node-size"
    assert "use nodes of 3 table GPUs instead of 2" in text


@pytest.mark.parametrize(("stated", "words"), [(4.0, "of 4"), (None, "of none that are stated")])
def test_cores_are_counted_by_node(stated: float | None, words: str) -> None:
    """Eight cores on two nodes are no eight cores on one; unknown counts as none."""
    role = replace(table_role("train", {4: 9.0}, replica_gpus=4), cpu_cores_per_gpu=1.5)
    cluster = table_cluster(8, 4)
    nodes = tuple(replace(node, cpu_cores=stated) for node in cluster.nodes)
    code, text = told(Problem(replace(cluster, nodes=nodes), (one(role),)))
    assert code == "cpu-cores"
    assert f"give every node 6 cores of CPU instead {words}" in text


def test_only_the_excluded_gpus_it_needs_are_named() -> None:
    """Of three excluded GPUs one would do; asking for all would take more than is needed."""
    gpus = tuple(Gpu(GpuId("n", at), TABLE_CLASS, 1.0) for at in range(4))
    role = replace(
        table_role("train", {2: 9.0}), excluded_gpus=frozenset({gpus[0].id, gpus[1].id, gpus[2].id})
    )
    code, text = told(Problem(Cluster("c", (Node("n", gpus),)), (one(role),)))
    assert code == "exclusion"
    assert text.count("n:") == 1


def test_a_role_without_a_price_is_named_with_the_refusal() -> None:
    """No limit helps what was never measured: the refusal must be passed on."""
    role = Role("train", "actor_train", refusals=("no point at tp3",))
    problem = Problem(table_cluster(8), (one(role),))
    assert cannot_run(problem, problem.tasks[0]).text == "t cannot be priced: role train: no point at tp3"


def test_gpus_nobody_has_are_named() -> None:
    """Profiles of another GPU class are the likeliest reason for a plan without any configuration."""
    role = table_role("train", {1: 9.0}, gpu_class="h200")
    problem = Problem(table_cluster(8), (one(role),))
    assert "measured on h200, the cluster has table" in cannot_run(problem, problem.tasks[0]).text

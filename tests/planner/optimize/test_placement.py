"""From a choice to GPU ids: who stays, who goes where, and who is in the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from random_problems import random_problem

from libra_plan.models.parallelism import Layout
from libra_plan.models.topology import GpuId
from libra_plan.planner.optimize.assignment import UndecidedError
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.baselines import greedy
from libra_plan.planner.optimize.constraints import base_constraints
from libra_plan.planner.optimize.objective import TaskCandidates, candidates_of
from libra_plan.planner.optimize.placement import TaskPlacement, in_the_way, place
from libra_plan.planner.problem import IncumbentRole, IncumbentTask, IncumbentWorkers, Problem, Role, Task
from libra_plan.planner.tables import table_cluster, table_task

EXACT = SolveParams(deterministic=True)


def _problem(*tasks: Task, gpus: int = 8, per_node: int = 4) -> Problem:
    return Problem(table_cluster(gpus, per_node), tasks)


def _of_size(name: str, gpus: int) -> Task:
    return table_task(name, 1.0, {"r": {gpus: 2.0}}, replica_gpus={"r": gpus})


def _held(problem: Problem, task: str, *places: tuple[int, int], workers: tuple = ()) -> IncumbentTask:
    gpus = tuple(problem.cluster.nodes[node].gpus[index].id for node, index in places)
    return IncumbentTask(task, (IncumbentRole("r", Layout(tp=len(gpus)), (gpus,), "r"),), workers)


def _kept(tasks: list[TaskCandidates], t: int, *, kept: bool = True) -> int:
    entries = tasks[t].candidates
    return next(c for c, entry in enumerate(entries) if (entry.held is not None) == kept)


def _gpus(placed: TaskPlacement) -> set[GpuId]:
    return {gpu for role in placed.roles for gpu in role.gpus}


def test_a_task_that_stays_keeps_its_gpus_and_the_others_take_the_rest() -> None:
    """It holds the second half of the first node; the newcomer of 4 GPUs needs the second node whole."""
    problem = _problem(_of_size("old", 2), _of_size("new", 4))
    held = _held(problem, "old", (0, 2), (0, 3))
    problem = replace(problem, running=(held,))
    tasks = candidates_of(problem, problem)
    found = place(problem, tasks, {0: _kept(tasks, 0), 1: 0}, EXACT, limit_s=1.0)
    assert found is not None
    assert found[0].roles[0].replicas == held.roles[0].replicas
    assert _gpus(found[1]) == {gpu.id for gpu in problem.cluster.nodes[1].gpus}


def test_what_lies_on_the_gpus_of_another_cannot_stay_beside_it() -> None:
    """Two kept placements that share a GPU are no placement."""
    problem = _problem(_of_size("a", 2), _of_size("b", 2))
    both = (_held(problem, "a", (0, 0), (0, 1)), _held(problem, "b", (0, 1), (0, 2)))
    alone = [replace(problem, running=(held,)) for held in both]
    tasks = [candidates_of(one, one)[t] for t, one in enumerate(alone)]
    choice = {t: _kept(tasks, t) for t in (0, 1)}
    assert place(problem, tasks, choice, EXACT, limit_s=1.0) is None
    assert place(problem, tasks, {0: choice[0]}, EXACT, limit_s=1.0) is not None


def test_a_task_that_moves_prefers_the_gpus_it_holds() -> None:
    """It grows from one GPU to two; the first node is as free as that where it is."""
    problem = _problem(table_task("a", 1.0, {"r": {1: 4.0, 2: 2.0}}))
    problem = replace(problem, running=(_held(problem, "a", (1, 2)),))
    tasks = candidates_of(problem, problem)
    two = next(c for c, e in enumerate(tasks[0].candidates) if e.configuration.gpus == 2 and e.held is None)
    found = place(problem, tasks, {0: two}, EXACT, limit_s=1.0)
    assert found is not None
    assert {gpu.node for gpu in _gpus(found[0])} == {problem.cluster.nodes[1].id}
    assert problem.cluster.nodes[1].gpus[2].id in _gpus(found[0])


def test_blocks_that_do_not_pack_are_no_placement_and_without_time_undecided() -> None:
    """Three blocks of 3 do not fit on nodes of 4; nobody may say so before CP-SAT has looked."""
    problem = _problem(*(_of_size(name, 3) for name in "abc"))
    tasks = candidates_of(problem, problem)
    choice = dict.fromkeys(range(3), 0)
    assert place(problem, tasks, choice, EXACT, limit_s=1.0) is None
    with pytest.raises(UndecidedError):
        place(problem, tasks, choice, EXACT, limit_s=0.0)


def test_workers_of_a_kept_task_stay_unless_they_are_no_longer_those_it_needs() -> None:
    """Three workers stay as they are; when it needs four, all are placed anew."""
    env = Role("env", "env", cpu_workers=3, cpu_cores=3.0)
    task = _of_size("a", 2)
    problem = _problem(replace(task, roles=(*task.roles, env)))
    nodes = tuple(replace(node, cpu_cores=8.0, host_memory_mib=8.0) for node in problem.cluster.nodes)
    problem = replace(problem, cluster=replace(problem.cluster, nodes=nodes))
    names = [node.id for node in nodes]
    workers = (IncumbentWorkers("env", names[0], 1), IncumbentWorkers("env", names[1], 2))
    problem = replace(problem, running=(_held(problem, "a", (0, 0), (0, 1), workers=workers),))
    for number, wanted in ((3, Counter({names[0]: 1, names[1]: 2})), (4, None)):
        roles = (*task.roles, replace(env, cpu_workers=number))
        changed = replace(problem, tasks=(replace(task, roles=roles),))
        tasks = candidates_of(changed, changed)
        found = place(changed, tasks, {0: _kept(tasks, 0)}, EXACT, limit_s=1.0)
        assert found is not None
        shares = Counter({share.node: share.workers for share in found[0].cpu})
        assert sum(shares.values()) == number
        assert wanted is None or shares == wanted


def test_the_cheapest_tasks_that_leave_room_are_in_the_way() -> None:
    """A block of 4 needs a node: one task of cost 5 on the first, or two of cost 1 each on the second."""
    problem = _problem(*(_of_size(name, 1) for name in "abc"), _of_size("new", 4))
    running = tuple(
        _held(problem, name, at) for name, at in zip("abc", ((0, 0), (1, 0), (1, 1)), strict=True)
    )
    problem = replace(problem, running=running)
    tasks = candidates_of(problem, problem)
    choice = {0: _kept(tasks, 0), 1: _kept(tasks, 1), 2: _kept(tasks, 2), 3: 0}
    assert in_the_way(problem, tasks, choice, {0: 5.0, 1: 1.0, 2: 1.0}) == [1, 2]
    assert in_the_way(problem, tasks, choice, {0: 1.5, 1: 1.0, 2: 1.0}) == [0]
    assert in_the_way(problem, tasks, choice, {1: 1.0}) == []
    del choice[0]
    assert in_the_way(problem, tasks, choice, {1: 1.0, 2: 1.0}) == []


@pytest.mark.parametrize("seed", range(8))
def test_no_gpu_is_given_to_two_tasks_and_each_gets_what_it_was_promised(seed: int) -> None:
    """The greedy choice of random problems, where it can be placed."""
    problem = random_problem(seed)
    tasks = candidates_of(problem, problem)
    choice = greedy(tasks, base_constraints(tasks, problem.cluster))
    found = place(problem, tasks, choice, EXACT, limit_s=5.0)
    if found is None:
        return
    taken = [gpu for placed in found.values() for gpu in _gpus(placed)]
    assert len(taken) == len(set(taken))
    for t, placed in found.items():
        configuration = tasks[t].candidates[choice[t]].configuration
        assert len(_gpus(placed)) <= configuration.gpus
        for role in placed.roles:
            assert len(role.replicas) == role.choice.option.replicas
            assert {problem.cluster.gpus[gpu].gpu_class for gpu in role.gpus} == {
                role.choice.option.gpu_class
            }

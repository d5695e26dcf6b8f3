"""What a running task may go on in: the same layout on the same GPUs, with today's seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libra_plan.models.parallelism import Layout
from libra_plan.models.topology import GpuId
from libra_plan.planner.optimize.incumbent import held_configurations
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import Arrangement, IncumbentRole, IncumbentTask, Problem, Task
from libra_plan.planner.tables import table_cluster, table_role, table_task

TWO_ROLES = {"rollout": {1: 6.0, 2: 3.0}, "actor": {1: 4.0, 2: 2.0}}


def _problem(task: Task, gpus: int = 4, per_node: int = 4) -> Problem:
    return Problem(table_cluster(gpus, per_node), (task,))


def _pair() -> tuple[Problem, Task, IncumbentTask]:
    """Return a task of one role that holds a replica of two GPUs on the first node."""
    task = table_task("a", 1.0, {"r": {2: 3.0, 4: 2.0}}, replica_gpus={"r": 2})
    problem = _problem(task, 8, 4)
    gpus = tuple(gpu.id for gpu in problem.cluster.nodes[0].gpus[:2])
    return problem, task, IncumbentTask("a", (IncumbentRole("r", Layout(tp=2), (gpus,), "r"),))


def _on(held: IncumbentTask, *replicas: tuple[GpuId, ...], layout: Layout | None = None) -> IncumbentTask:
    (role,) = held.roles
    return replace(held, roles=(replace(role, replicas=replicas, layout=layout or role.layout),))


def test_a_task_may_stay_in_the_configuration_it_has() -> None:
    """Of replicas of 2 GPUs it holds one, so the one of two replicas is none of them."""
    problem, task, held = _pair()
    (found,) = held_configurations(problem, task, held)
    assert found.gpus == 2
    assert found.step_time_s.value == 3.0


def test_its_step_time_is_that_of_today() -> None:
    """A role that was measured anew is priced anew."""
    problem, task, held = _pair()
    slower = replace(task, roles=(table_role("r", {2: 5.0}, replica_gpus=2),))
    (found,) = held_configurations(replace(problem, tasks=(slower,)), slower, held)
    assert found.step_time_s.value == 5.0


def test_it_cannot_stay_where_something_has_changed() -> None:
    """A GPU that is gone or excluded, another role, another layout, a pin elsewhere, a larger minimum."""
    problem, task, held = _pair()
    (gpus,) = held.roles[0].replicas
    (role,) = task.roles

    def stays(changed: Task, now: IncumbentTask = held) -> bool:
        return bool(held_configurations(problem, changed, now))

    assert stays(task)
    assert not stays(task, _on(held, (gpus[0], GpuId("gone", 0))))
    assert not stays(task, _on(held, gpus, layout=Layout(tp=1, pp=2)))
    assert not stays(replace(task, roles=(replace(role, id="other"),)))
    assert not stays(replace(task, roles=(replace(role, excluded_gpus=frozenset(gpus[:1])),)))
    assert not stays(replace(task, min_gpus=4))
    others = frozenset(gpu.id for gpu in problem.cluster.nodes[1].gpus[:2])
    assert not stays(replace(task, roles=(replace(role, pinned_gpus=others),)))
    assert stays(replace(task, roles=(replace(role, pinned_gpus=frozenset(gpus)),)))


def test_a_replica_over_two_nodes_stays_only_where_it_fills_both() -> None:
    """Half of each node is no block that a configuration could have."""
    problem, task, held = _pair()
    first, second = (tuple(gpu.id for gpu in node.gpus) for node in problem.cluster.nodes)
    assert not held_configurations(problem, task, _on(held, (first[0], second[0])))
    wide = table_task("a", 1.0, {"r": {8: 1.0}}, replica_gpus={"r": 8})
    whole = _on(held, (*first, *second), layout=Layout(tp=8))
    assert len(held_configurations(replace(problem, tasks=(wide,)), wide, whole)) == 1


def test_roles_that_take_turns_may_stay_together_and_those_apart_may_stay_apart() -> None:
    """What is held says which: both on the same two GPUs, or each on its own."""
    task = table_task("a", 1.0, TWO_ROLES)
    problem = _problem(task)
    g = [gpu.id for gpu in problem.cluster.nodes[0].gpus]

    def held(rollout: list[GpuId], actor: list[GpuId]) -> IncumbentTask:
        roles = (("rollout", rollout), ("actor", actor))
        return IncumbentTask(
            "a", tuple(IncumbentRole(name, Layout(), tuple((x,) for x in on), name) for name, on in roles)
        )

    together = held_configurations(problem, task, held(g[:2], g[:2]))
    assert {each.gpus for each in together} == {2}
    assert together[0].step_time_s.value == pytest.approx(3.0 + 2.0)
    apart = held_configurations(problem, task, held(g[:2], g[2:]))
    assert all(len(each.phases[0].pools) == 2 for each in apart if len(each.phases) == 1)
    assert {each.gpus for each in apart} == {4}
    only_apart = replace(task, arrangements=frozenset({Arrangement.SEPARATE}))
    assert held_configurations(problem, only_apart, held(g[:2], g[:2])) == []


def test_the_fastest_comes_first() -> None:
    """Several configurations may describe what a task holds."""
    task = table_task("a", 1.0, TWO_ROLES)
    problem = _problem(task)
    (held,) = held_by(solve_problem(problem).require_plan())
    seconds = [each.step_time_s.value for each in held_configurations(problem, task, held)]
    assert seconds
    assert seconds == sorted(seconds)

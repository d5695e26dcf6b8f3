"""Why tasks wait: the reason names what is short, and many waiting tasks do not take for ever to tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.optimize import unscheduled
from libra_plan.planner.optimize.base import SolveParams, TerminationReason
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Coupling, CouplingKind, Problem, Role, StageOption, Task


def one_gpu_task(name: str, cores: float = 0.0, host_mib: float = 0.0) -> Task:
    second = Estimate(1.0, 1.0, 1.0, "s", Origin.MEASURED)
    option = StageOption("a", Layout(), 1, second, 100.0, 50.0, 10.0, 0.0, None, None)
    role = Role("r", "rollout", (option,), cpu_cores_per_gpu=cores, host_memory_mib_per_gpu=host_mib)
    return Task(name, 1.0, (role,), Coupling(CouplingKind.SYNC))


def lab(gpus: int, cores: float | None = None, host_mib: float | None = None) -> Cluster:
    cards = tuple(Gpu(GpuId("n0", index), "a", 1000.0) for index in range(gpus))
    return Cluster("lab", (Node("n0", cards, cpu_cores=cores, host_memory_mib=host_mib),))


@pytest.mark.parametrize(
    ("cluster", "task", "said"),
    [
        (lab(1), one_gpu_task("t", cores=4.0), "needs 4 cores of CPU .* has none that are stated.*cpu_cores"),
        (lab(1, 2.0), one_gpu_task("t", cores=4.0), "needs 4 cores of CPU .* the cluster has 2;"),
        (
            lab(1, 2.0),
            one_gpu_task("t", host_mib=64.0),
            "needs 64 MiB of host memory .* none that are stated",
        ),
    ],
)
def test_the_reason_says_what_a_node_lacks(cluster: Cluster, task: Task, said: str) -> None:
    """It said that the task needs 1 GPU and none could be placed, with a free GPU in sight (A069)."""
    result = solve_problem(Problem(cluster, (task,)), SolveParams())
    assert result.plan is None
    assert result.termination.detail.startswith("[cpu] t: ")
    with pytest.raises(Exception, match=said):
        result.require_plan()


def test_a_waiting_task_is_told_its_cores_beside_one_that_runs() -> None:
    """The same reason, whether or not anything else runs."""
    problem = Problem(lab(2, 2.0), (one_gpu_task("small", 1.0), one_gpu_task("large", 3.0)))
    (waiting,) = solve_problem(problem, SolveParams()).require_plan().queued
    assert (waiting.task, waiting.code) == ("large", "cpu")


def test_many_waiting_tasks_take_few_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ninety tasks that wait took ninety solves, long after the time limit."""
    calls: list[Any] = []
    real = unscheduled.maximise
    monkeypatch.setattr(unscheduled, "maximise", lambda *args, **more: calls.append(1) or real(*args, **more))
    tasks = tuple(replace(one_gpu_task(f"t{at}"), weight=1.0 + at / 100) for at in range(40))
    plan = solve_problem(Problem(lab(2), tasks), SolveParams()).require_plan()
    assert {each.code for each in plan.queued} == {"worth"}
    assert len(plan.queued) == 38
    assert 0 < len(calls) <= 10


def test_enough_in_all_but_not_on_any_node_is_told_as_such() -> None:
    """Candidates that no node has room for were tried one by one, until the time limit passed."""
    nodes = tuple(replace(lab(2, 3.0).nodes[0], id=f"n{at}", gpus=()) for at in range(2))
    cards = [tuple(Gpu(GpuId(node.id, index), "a", 1000.0) for index in range(2)) for node in nodes]
    two = Cluster("lab", tuple(replace(n, gpus=gpus) for n, gpus in zip(nodes, cards, strict=True)))
    result = solve_problem(Problem(two, (one_gpu_task("t", 4.0),)), SolveParams())
    assert result.termination.reason is TerminationReason.INFEASIBLE
    assert result.termination.detail.startswith("[cpu] t: no node has the CPU cores")
    env = Role("env", "env", cpu_workers=2, cpu_cores=8.0)
    task = replace(one_gpu_task("t"), roles=(*one_gpu_task("t").roles, env))
    result = solve_problem(Problem(two, (task,)), SolveParams())
    assert result.termination.detail.startswith("[cpu] t: ")


def test_what_several_nodes_hold_together_is_not_forbidden() -> None:
    """Eight workers of one core on two nodes of four, and blocks on the node that has the cores."""
    one, other = lab(1, 5.0).nodes[0], replace(lab(1, 4.0).nodes[0], id="n1", gpus=())
    env = Role("env", "env", cpu_workers=8, cpu_cores=8.0)
    task = replace(one_gpu_task("t", 1.0), roles=(*one_gpu_task("t", 1.0).roles, env))
    plan = solve_problem(Problem(Cluster("lab", (one, other)), (task,)), SolveParams()).require_plan()
    assert len(plan.running) == 1

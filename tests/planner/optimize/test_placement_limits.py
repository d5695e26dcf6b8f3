"""What is claimed when placement runs out of time, and when a node has less to give than before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_problems import MEMORY_MIB

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.optimize.base import SolveParams, TerminationReason
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Status
from libra_plan.planner.problem import (
    Coupling,
    CouplingKind,
    IncumbentRole,
    IncumbentTask,
    IncumbentWorkers,
    Problem,
    Role,
    StageOption,
    Task,
)
from libra_plan.planner.verify import violations_of

CORES = 100.0


def option(gpus: int = 1) -> StageOption:
    second = Estimate(1.0, 1.0, 1.0, "s", Origin.MEASURED)
    return StageOption("a", Layout(tp=gpus), 1, second, 100.0, 50.0, 10.0, 0.0, None, None)


def one_gpu_task(name: str, cores: float, **more: float) -> Task:
    role = Role("r", "rollout", (option(),), cpu_cores_per_gpu=cores)
    return Task(name, 1.0, (role,), Coupling(CouplingKind.SYNC), **more)  # type: ignore[arg-type]


def cluster(nodes: int, gpus: int, cores: float = CORES) -> Cluster:
    return Cluster(
        "lab",
        tuple(
            Node(f"n{at}", tuple(Gpu(GpuId(f"n{at}", index), "a", MEMORY_MIB) for index in range(gpus)),
                 cpu_cores=cores, host_memory_mib=1e6)
            for at in range(nodes)
        ),
    )  # fmt: skip


def cores_that_just_fit(nodes: int, seed: int) -> Problem:
    """Draw three tasks a node whose cores add up to the node's: all run, but finding how is hard."""
    rng = np.random.default_rng(seed)
    cores: list[float] = []
    for _ in range(nodes):
        one, other = (float(rng.integers(26, 45)) for _ in range(2))
        cores += [one, other, CORES - one - other]
    rng.shuffle(cores)
    return Problem(cluster(nodes, 8), tuple(one_gpu_task(f"t{at}", each) for at, each in enumerate(cores)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_placement_not_found_in_time_is_no_proof_that_there_is_none(seed: int) -> None:
    """All 45 tasks fit by construction, so no bound may be below 45 and less is not optimal."""
    problem = cores_that_just_fit(15, seed)
    result = solve_problem(problem, SolveParams(time_limit_s=0.05, deterministic=True))
    plan = result.require_plan()
    assert violations_of(problem, plan) == []
    assert plan.certificate.bound >= 45.0
    assert (plan.certificate.status is Status.OPTIMAL) == (len(plan.running) == 45)


def test_the_splits_made_by_hand_are_rivals_even_where_not_all_of_them_fits() -> None:
    """A search that ends early still has the greedy split, less the tasks that have no room."""
    problem = cores_that_just_fit(15, 4)
    plan = solve_problem(problem, SolveParams(time_limit_s=0.05, deterministic=True)).require_plan()
    assert dict(plan.certificate.baselines)["greedy"] >= 40.0
    assert plan.certificate.objective >= max(value for _, value in plan.certificate.baselines)


def test_a_deterministic_solve_ends_by_the_work_it_has_done() -> None:
    """Each of its many solver calls used to have the whole limit for itself."""
    problem = cores_that_just_fit(15, 5)
    first, second = (
        solve_problem(problem, SolveParams(time_limit_s=0.05, deterministic=True)) for _ in range(2)
    )
    assert first.plan == second.plan
    # every task that waits is explained without a solve once the work is spent
    assert len(first.require_plan().running) + len(first.require_plan().queued) == 45


def held(task: str, node: str, index: int) -> IncumbentTask:
    return IncumbentTask(task, (IncumbentRole("r", Layout(), ((GpuId(node, index),),), "r"),))


def test_a_task_does_not_stay_on_a_node_that_lost_its_cores() -> None:
    """It kept its GPU, the verifier found the node overfull, and the command ended with a traceback."""
    task = one_gpu_task("t", 8.0)
    weak, strong = cluster(2, 1).nodes
    changed = Cluster("lab", (replace(weak, cpu_cores=4.0), strong))
    problem = Problem(changed, (task,), running=(held("t", "n0", 0),))
    plan = solve_problem(problem, SolveParams()).require_plan()
    assert violations_of(problem, plan) == []
    assert plan.running[0].gpus == (GpuId("n1", 0),)


def test_a_task_that_can_stay_nowhere_on_its_node_waits_for_cores() -> None:
    """With one node only, there is no plan, and the reason is not a defect."""
    problem = Problem(cluster(1, 1, cores=4.0), (one_gpu_task("t", 8.0),), running=(held("t", "n0", 0),))
    result = solve_problem(problem, SolveParams())
    assert result.plan is None
    assert result.termination.reason is TerminationReason.INFEASIBLE


def test_a_task_whose_gpus_are_gone_starts_again_even_when_that_takes_the_whole_horizon() -> None:
    """A restart of unknown price is charged the horizon; the task must not wait for ever for that."""
    task = one_gpu_task("t", 8.0, restart_s=5000.0)
    problem = Problem(cluster(1, 1), (task,), running=(held("t", "gone", 0),), horizon_s=3600.0)
    plan = solve_problem(problem, SolveParams()).require_plan()
    assert [running.task for running in plan.running] == ["t"]
    assert violations_of(problem, plan) == []


def test_a_restart_as_long_as_the_horizon_is_never_made_for_gain() -> None:
    """Two GPUs would be twice as fast, but the task stays on its one."""
    role = Role("r", "rollout", (option(), replace(option(), replicas=2, time_s=option().time_s.scaled(0.5))))
    task = Task("t", 1.0, (role,), Coupling(CouplingKind.SYNC), restart_s=3600.0)
    problem = Problem(cluster(1, 2), (task,), running=(held("t", "n0", 1),), horizon_s=3600.0)
    plan = solve_problem(problem, SolveParams()).require_plan()
    assert not plan.running[0].moved


def test_tools_of_a_task_that_stays_do_not_move() -> None:
    """Solving twice with nothing changed moved the sandboxes of an agent to another node."""
    env = Role("env", "env", cpu_workers=4, cpu_cores=4.0)
    task = replace(one_gpu_task("t", 1.0), roles=(*one_gpu_task("t", 1.0).roles, env))
    two = cluster(2, 1, cores=10.0)
    sandboxes = (IncumbentWorkers("env", "n0", 1), IncumbentWorkers("env", "n1", 3))
    now = replace(held("t", "n1", 0), workers=sandboxes)
    kept = solve_problem(Problem(two, (task,), running=(now,)), SolveParams()).require_plan().running[0]
    assert [(each.role, each.node, each.workers) for each in kept.cpu] == [("env", "n0", 1), ("env", "n1", 3)]
    less = Cluster("lab", (two.nodes[0], replace(two.nodes[1], cpu_cores=2.0)))
    problem = Problem(less, (task,), running=(now,))
    plan = solve_problem(problem, SolveParams()).require_plan()
    assert violations_of(problem, plan) == []
    assert not plan.running[0].moved
    assert {each.node: each.workers for each in plan.running[0].cpu}["n0"] >= 3

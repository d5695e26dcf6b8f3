"""Small problems whose tasks run jointly, and the manifests of their plans."""

from __future__ import annotations

from dataclasses import replace

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import (
    Arrangement,
    Coupling,
    CouplingKind,
    IncumbentRole,
    IncumbentTask,
    IncumbentWorkers,
    Problem,
    Role,
    Sharing,
    SharingKind,
    StageOption,
    Task,
)

EXACT = SolveParams(gap=0.0, deterministic=True)


def option(seconds: float, gpus: int = 1, **changes: float | None) -> StageOption:
    """Make an option on so many GPUs of one each, in 300 MiB of which 200 stay."""
    time_s = Estimate(seconds, 0.9 * seconds, 1.2 * seconds, "s", Origin.MEASURED)
    made = StageOption("a", Layout(), gpus, time_s, 300.0, 200.0, 50.0, 150.0, 0.25, 0.25)
    return replace(made, **changes)


def task(name: str, rollout_s: float, actor_s: float, *, env: bool = False) -> Task:
    """Make a sync task whose two roles are kept apart, each on one GPU."""
    roles = [
        Role(
            "rollout", "rollout", (option(rollout_s),), cpu_cores_per_gpu=2.0, host_memory_mib_per_gpu=100.0
        ),
        Role("actor", "actor_train", (option(actor_s),), cpu_cores_per_gpu=1.0, host_memory_mib_per_gpu=50.0),
    ]
    if env:
        roles.append(Role("env", "env", cpu_workers=4, cpu_cores=4.0, host_memory_mib=400.0))
    return Task(
        name,
        1.0,
        tuple(roles),
        Coupling(CouplingKind.SYNC),
        frozenset({Arrangement.SEPARATE}),
        samples_per_step=64.0,
        sync_s=0.5,
        restart_s=600.0,
    )


def cluster(gpus: int, memory_mib: float = 1000.0) -> Cluster:
    """Make one node."""
    each = tuple(Gpu(GpuId("n0", at), "a", memory_mib, f"GPU-{at}") for at in range(gpus))
    return Cluster("small", (Node("n0", each, "10.0.0.1", 64.0, 8192.0),))


def turns_problem() -> Problem:
    """Return two tasks the two GPUs that one of them needs."""
    tasks = (task("math", 6.0, 4.0, env=True), task("code", 3.0, 7.0))
    return Problem(cluster(2), tasks, sharing=(Sharing(SharingKind.TURNS, ("math", "code")),))


def solved(problem: Problem) -> Plan:
    """Solve to optimality, the same way every time."""
    plan = solve_problem(problem, EXACT).plan
    assert plan is not None
    return plan


def held(plan: Plan) -> tuple[IncumbentTask, ...]:
    """Say what every task of a plan holds."""
    return tuple(
        IncumbentTask(
            running.task,
            tuple(
                IncumbentRole(role.role, role.choice.layout, role.replicas, role.role)
                for role in running.roles
            ),
            tuple(IncumbentWorkers(share.role, share.node, share.workers) for share in running.cpu),
        )
        for running in plan.running
    )


def manifest_of(problem: Problem, parent: Manifest | None = None) -> Manifest:
    """Solve and write down."""
    return build_manifest(problem, solved(problem), name="small", parent=parent)


CASES = {"turns": turns_problem}

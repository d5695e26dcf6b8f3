"""Problems and plans made by hand, for tests of what reads them: no solver, no cost model.

A plan is said by where its roles run: `role("actor", [["n0:0", "n0:1"]], tp=2)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.plan import (
    Certificate,
    Configuration,
    CpuShare,
    MemoryMode,
    Phase,
    PlacedRole,
    Plan,
    Pool,
    QueuedTask,
    RoleChoice,
    RunningTask,
    Status,
)
from libra_plan.planner.problem import Coupling, CouplingKind, Problem, Role, StageOption, Task
from libra_plan.profiles.schema import LifecycleSpec, LogNormal, RoleSpec, TaskSpec, WorkloadFile, WorkSpec

GPU_CLASS = "h200_sxm"
MEMORY_MIB = 143_771.0
SYNC = Coupling(CouplingKind.SYNC)
KINDS = {  # of the roles with these names; any other is a rollout
    "actor": "actor_train",
    "reference": "reference",
    "critic": "critic_train",
    "values": "critic_score",
    "reward": "reward",
    "judge": "judge",
    "env": "env",
}


def cluster(*gpus_per_node: int, address: bool = True, ports: tuple[int, int] = (24000, 24999)) -> Cluster:
    """Make nodes n0, n1, … with so many GPUs each."""
    return Cluster(
        "lab",
        tuple(
            node(f"n{number}", count, f"10.0.0.{number + 1}" if address else None, ports)
            for number, count in enumerate(gpus_per_node)
        ),
    )


def node(name: str, count: int, address: str | None, ports: tuple[int, int] = (24000, 24999)) -> Node:
    gpus = tuple(
        Gpu(GpuId(name, index), GPU_CLASS, MEMORY_MIB, uuid=f"GPU-{name}-{index}") for index in range(count)
    )
    return Node(name, gpus, address, 96.0, 1e6, port_first=ports[0], port_last=ports[1])


def gpu(text: str) -> GpuId:
    name, _, index = text.rpartition(":")
    return GpuId(name, int(index))


def span(name: str, first: int, count: int) -> list[str]:
    return [f"{name}:{index}" for index in range(first, first + count)]


def role(
    name: str,
    replicas: Sequence[Sequence[str]],
    *,
    tp: int = 1,
    pp: int = 1,
    cp: int = 1,
    ep: int = 1,
    peak_mib: float = 90_000.0,
) -> PlacedRole:
    option = StageOption(
        GPU_CLASS,
        Layout(tp=tp, pp=pp, cp=cp, ep=ep),
        len(replicas),
        Estimate(20.0, 18.0, 22.5, "s", Origin.MEASURED),
        peak_mib,
        40_000.0,
        2_000.0,
        30_000.0,
        1.0,
        1.0,
    )
    placed = tuple(tuple(gpu(text) for text in replica) for replica in replicas)
    return PlacedRole(name, RoleChoice(name, option), placed)


def running(
    task: str,
    *pools: Sequence[PlacedRole],
    cpu: Iterable[CpuShare] = (),
    memory_mode: MemoryMode = MemoryMode.RESIDENT,
    phases: Sequence[int] | None = None,
) -> RunningTask:
    """Run a task on pools; `phases[i]` is the phase of pool i (all in phase 0 unless told)."""
    numbers = list(phases or [0] * len(pools))
    made = [_pool(pool, memory_mode) for pool in pools]
    configuration = Configuration(
        task,
        tuple(
            Phase(tuple(pool for pool, number in zip(made, numbers, strict=True) if number == phase))
            for phase in sorted(set(numbers))
        ),
        Estimate(60.0, 54.0, 67.5, "s", Origin.INTERPOLATED),
        tuple((GPU_CLASS, pool.block_gpus, pool.blocks) for pool in made),
        max(pool.peak_mib for pool in made) if made else 0.0,
    )
    roles = tuple(placed for pool in pools for placed in pool)
    return RunningTask(task, configuration, roles, tuple(cpu), 1.25)


def _pool(roles: Sequence[PlacedRole], memory_mode: MemoryMode) -> Pool:
    gpus = {gpu for placed in roles for gpu in placed.gpus}
    peak = max((placed.choice.option.peak_mib for placed in roles), default=0.0)
    return Pool(GPU_CLASS, tuple(placed.choice for placed in roles), 1, len(gpus), memory_mode, peak)


def problem_of(
    where: Cluster,
    tasks: Iterable[RunningTask],
    *,
    cpu_cores_per_gpu: float = 4.0,
    coupling: Coupling = SYNC,
) -> Problem:
    """Make the problem that these running tasks answer; CPU shares become CPU-only roles."""
    return Problem(
        where,
        tuple(_task(task, cpu_cores_per_gpu, coupling) for task in tasks),
        input_digests={"workload": f"sha256:{'1' * 64}", "cluster": f"sha256:{'2' * 64}"},
    )


def _task(task: RunningTask, cpu_cores_per_gpu: float, coupling: Coupling) -> Task:
    on_gpu = [
        Role(one.role, KINDS.get(one.role, "rollout"), cpu_cores_per_gpu=cpu_cores_per_gpu)
        for one in task.roles
    ]
    workers = {name: sum(one.workers for one in task.cpu if one.role == name) for name in _cpu_roles(task)}
    on_cpu = [Role(name, "env", cpu_workers=count, cpu_cores=float(count)) for name, count in workers.items()]
    return Task(task.task, 1.0, (*on_gpu, *on_cpu), coupling)


def _cpu_roles(task: RunningTask) -> list[str]:
    return list(dict.fromkeys(one.role for one in task.cpu))


def plan_of(tasks: Iterable[RunningTask], queued: Iterable[QueuedTask] = ()) -> Plan:
    certificate = Certificate(
        "throughput",
        Status.OPTIMAL,
        1.25,
        1.25,
        0.0,
        (("cp-sat", 1.25), ("lp", 1.5)),
        (("equal-split", 1.0),),
    )
    return Plan(tuple(tasks), tuple(queued), certificate)


def workload_of(
    tasks: Iterable[RunningTask],
    command: Sequence[str] = ("train.py",),
    lifecycle: LifecycleSpec | None = None,
) -> WorkloadFile:
    """Return every role of every task the same command."""
    lengths = LogNormal(median_tokens=1000.0, sigma=1.0, max_tokens=8192)
    return WorkloadFile(
        schema_version=1,
        tasks=tuple(
            TaskSpec(
                id=task.task,
                work_per_step=WorkSpec(samples=512, prompt_tokens=lengths),
                roles=tuple(
                    RoleSpec(id=name, kind="rollout", command=tuple(command))
                    for name in [*(placed.role for placed in task.roles), *_cpu_roles(task)]
                ),
                lifecycle=lifecycle
                or LifecycleSpec(grace_s=120.0, checkpoint_dir="/checkpoints/" + task.task),
            )
            for task in tasks
        ),
    )


def manifest_of(
    where: Cluster,
    *tasks: RunningTask,
    parent: Manifest | None = None,
    command: Sequence[str] = ("train.py",),
    lifecycle: LifecycleSpec | None = None,
    queued: Iterable[QueuedTask] = (),
    coupling: Coupling = SYNC,
) -> Manifest:
    """Build the manifest of these tasks on this cluster."""
    return build_manifest(
        problem_of(where, tasks, coupling=coupling),
        plan_of(tasks, queued),
        name="lab",
        parent=parent,
        workload=workload_of(tasks, command, lifecycle),
    )


def single_node() -> Manifest:
    """Train on 2 GPUs and roll out on 6 of one node, in separate pools, with an environment on CPUs."""
    tasks = [
        running(
            "grpo",
            [role("actor", [["n0:0", "n0:1"]], tp=2)],
            [role("rollout", [["n0:2", "n0:3"], ["n0:4", "n0:5"], ["n0:6", "n0:7"]], tp=2)],
            cpu=[CpuShare("env", "n0", 16)],
        )
    ]
    queued = [QueuedTask("reward-model", "gpus-short", "asks for 2 GPUs, 0 are left")]
    return manifest_of(
        cluster(8), *tasks, command=("python", "-m", "agent.run", "--config", "a b.yaml"), queued=queued
    )


def two_nodes() -> Manifest:
    """Run one replica over two whole nodes of 4, and another task on a third node."""
    return manifest_of(
        cluster(4, 4, 8),
        running("large", [role("actor", [[*span("n0", 0, 4), *span("n1", 0, 4)]], tp=4, pp=2)]),
        running("small", [role("actor", [["n2:0"], ["n2:1"]])], [role("rollout", [span("n2", 4, 4)], tp=4)]),
    )


def colocated() -> Manifest:
    """Let actor, rollout and reference take the same 8 GPUs in turn, asleep while others work."""
    return manifest_of(
        cluster(8, address=False),
        running(
            "ppo",
            [
                role("actor", [span("n0", 0, 4), span("n0", 4, 4)], tp=4),
                role("rollout", [[one] for one in span("n0", 0, 8)]),
                role("reference", [span("n0", 0, 2)], tp=2),
            ],
            memory_mode=MemoryMode.SLEEP,
        ),
    )


CASES = {"single-node": single_node, "two-nodes": two_nodes, "colocated": colocated}

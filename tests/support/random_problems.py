"""Small random planning problems in which something binds: room, memory, limits, pins or hosts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from libra_plan.models.parallelism import Layout, RangedReplica
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.rollout.streaming import Stream
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import (
    Arrangement,
    Coupling,
    CouplingKind,
    IncumbentRole,
    IncumbentTask,
    Policy,
    Problem,
    Role,
    Sharing,
    SharingKind,
    StageOption,
    Task,
)

MEMORY_MIB = 1000.0
HOSTS = 0.25
LAYOUTS = {
    1: Layout(),
    2: Layout(tp=2),
    3: Layout(pp=3),
    4: Layout(tp=2, pp=2),
    8: Layout(tp=4, pp=2),
    16: Layout(tp=8, pp=2),
}
NODES = [
    (8,),
    (4, 4),
    (8, 8),
    (4, 2),
    (3, 5),
    (2, 2, 2),
    (6,),
    (4, 3, 1),
    (7,),
    (2, 2),
    (5, 3),
    (3, 3),
    (4, 4, 4),
]


def random_problem(seed: int, policy: Policy = Policy.THROUGHPUT, cluster: Cluster | None = None) -> Problem:
    """Draw a problem of 1–4 tasks on up to 16 GPUs; the seed, and the cluster if given, say it all."""
    rng = np.random.default_rng(seed)
    hosts = rng.random() < HOSTS and cluster is None
    cluster = cluster or _cluster(rng, hosts)
    large = len(cluster.gpus) > 8
    tasks = int(rng.integers(1, 4 if hosts or large else 5))
    drawn = [_task(rng, f"t{number}", cluster, hosts, 2 if large else 3) for number in range(tasks)]
    if tasks > 1 and rng.random() < 0.15:  # twins, so that ties are seen
        drawn[1] = replace(drawn[0], id="t1")
    return Problem(cluster, tuple(drawn), policy=policy, horizon_s=1000.0)


def with_running(problem: Problem, plan: Plan, seed: int) -> Problem:
    """Make a plan the running one, then change the world a little: weights, a lost GPU, a new task."""
    rng = np.random.default_rng(seed)
    held = tuple(
        IncumbentTask(
            running.task,
            tuple(
                IncumbentRole(
                    role.role,
                    role.choice.layout,
                    role.replicas,
                    _group(running, role.role),
                    role.choice.option.layouts if role.choice.option.mix else (),
                )
                for role in running.roles
            ),
        )
        for running in plan.running
        if rng.random() < 0.9
    )
    tasks = tuple(
        replace(
            task,
            weight=task.weight * float(rng.uniform(0.6, 1.6)),
            restart_s=float(rng.choice([0, 60, 300, 2000])),
        )
        for task in problem.tasks
    )
    cluster = problem.cluster
    if rng.random() < 0.4:
        cluster = _without(cluster, list(cluster.gpus)[int(rng.integers(len(cluster.gpus)))])
    return replace(problem, tasks=tasks, running=held, cluster=cluster)


def _group(running, name):
    for phase in running.configuration.phases:
        for pool in phase.pools:
            if any(choice.role == name for choice in pool.choices):
                return "+".join(choice.role for choice in pool.choices)
    raise KeyError(name)


def _without(cluster: Cluster, lost: GpuId) -> Cluster:
    nodes = tuple(
        replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.id != lost)) for node in cluster.nodes
    )
    return cluster if any(not node.gpus for node in nodes) else replace(cluster, nodes=nodes)


def _cluster(rng, hosts: bool) -> Cluster:
    sizes = NODES[int(rng.integers(len(NODES)))]
    mixed = len(sizes) > 1 and rng.random() < 0.15
    nodes = []
    for number, size in enumerate(sizes):
        name = f"n{number}"
        gpu_class = "b" if mixed and number == 0 else "a"
        gpus = [Gpu(GpuId(name, index), gpu_class, MEMORY_MIB) for index in range(size)]
        cores = [None, 4.0, 8.0, 16.0][int(rng.integers(4))] if hosts else None
        memory = [None, 200.0, 600.0, 2000.0][int(rng.integers(4))] if hosts else None
        nodes.append(Node(name, tuple(gpus), None, cores, memory))
    cluster = Cluster("small", tuple(nodes))
    if rng.random() < 0.3:
        cluster = _without(cluster, list(cluster.gpus)[int(rng.integers(len(cluster.gpus)))])
    return cluster


def with_mixes(problem: Problem, seed: int) -> Problem:
    """Return roles options whose replicas are of several sizes, some of them all of one."""
    rng = np.random.default_rng(seed)

    def mixed(option: StageOption) -> StageOption:
        sizes = [int(size) for size in rng.choice([1, 1, 2, 2, 3, 4], int(rng.integers(1, 5)))]
        layouts = sorted((LAYOUTS[size] for size in sizes), key=lambda each: -each.gpus_per_replica)
        rng.shuffle(layouts)
        largest = max(layouts, key=lambda each: each.gpus_per_replica)
        mix = tuple(RangedReplica(each, at, at + 1, 1, 1.0) for at, each in enumerate(layouts))
        return replace(option, layout=largest, replicas=len(mix), mix=mix, stream=None)

    def of_role(role: Role) -> Role:
        more = tuple(mixed(option) for option in role.options[:2] if rng.random() < 0.8)
        return replace(role, options=(*role.options, *more))

    tasks = (replace(task, roles=tuple(map(of_role, task.roles))) for task in problem.tasks)
    return replace(problem, tasks=tuple(tasks))


def with_seats(problem: Problem, seed: int) -> Problem:
    """Set GPUs aside that two roles share, and let roles of one GPU sit there, slower and with half of it."""
    rng = np.random.default_rng(seed)

    def of_node(node: Node) -> Node:
        first = node.gpus[0]
        if first.gpu_class != "a" or rng.random() < 0.3:
            return node
        seats = (
            Gpu(GpuId(node.id, 1000 * seat + first.id.index), "a.seat", MEMORY_MIB / 2, None, first.id.index)
            for seat in (1, 2)
        )
        return replace(node, gpus=(*node.gpus[1:], *seats))

    def of_role(role: Role) -> Role:
        if rng.random() < 0.2 or not role.options:
            return role
        seat = replace(
            role.options[0],
            gpu_class="a.seat",
            layout=Layout(),
            replicas=1,
            time_s=role.options[0].time_s.scaled(float(rng.uniform(0.5, 2.0))),
            peak_mib=float(rng.uniform(100.0, MEMORY_MIB / 2)),
            static_mib=50.0,
            sleep_s=None,
            wake_s=None,
        )
        return replace(role, options=(*role.options, seat), pinned_gpus=frozenset())

    nodes = tuple(map(of_node, problem.cluster.nodes))
    tasks = (replace(task, roles=tuple(map(of_role, task.roles))) for task in problem.tasks)
    return replace(problem, tasks=tuple(tasks), cluster=replace(problem.cluster, nodes=nodes))


def clusters_in_domains(seed: int) -> Cluster:
    """Draw up to six small nodes in NVLink domains, some in none, where wide replicas meet borders."""
    rng = np.random.default_rng(seed)
    size, count = [(2, 4), (1, 5), (1, 6), (1, 4), (2, 3)][int(rng.integers(5))]
    names = ["d0", "d1", *([None] if rng.random() < 0.4 else [])]
    nodes = [
        Node(
            f"n{number}",
            tuple(Gpu(GpuId(f"n{number}", index), "a", MEMORY_MIB) for index in range(size)),
            nvlink_domain=names[int(rng.integers(len(names)))],
            rack=["r0", "r1"][int(rng.integers(2))],
        )
        for number in range(count)
    ]
    return Cluster("domains", tuple(nodes))


def _task(rng, name: str, cluster: Cluster, hosts: bool, most_roles: int) -> Task:
    count = int(rng.choice(range(1, most_roles + 1), p=[0.3, 0.7] if most_roles == 2 else [0.3, 0.3, 0.4]))
    total = len(cluster.gpus)
    special = rng.random() < 0.25
    roles = [_role(rng, f"r{number}", cluster, hosts, special, 6 - count) for number in range(count)]
    if hosts and rng.random() < 0.5:
        env = Role(
            "env", "env", cpu_workers=int(rng.integers(1, 4)),
            cpu_cores=float(rng.integers(0, 9)), host_memory_mib=float(rng.choice([0, 60, 300])),
        )  # fmt: skip
        roles.insert(int(rng.integers(count + 1)), env)
    kind = list(CouplingKind)[int(rng.integers(3))]
    names = [each for each in Arrangement if rng.random() < 0.75] or list(Arrangement)
    return Task(
        name,
        weight=float(rng.choice([1.0, 1.0, 2.0, 0.5, 3.7])),
        roles=tuple(roles),
        coupling=Coupling(
            kind,
            staleness=1 + count % 2 if kind is CouplingKind.ASYNC else 0,
            groups=int(rng.integers(1, 6)) if kind is CouplingKind.PIPELINED else None,
        ),
        arrangements=frozenset(names),
        sync_s=float(rng.choice([0.0, 0.2, 2.0])),
        min_gpus=int(rng.integers(0, 4)) if rng.random() < 0.15 else 0,
        max_gpus=int(rng.integers(1, total + 1)) if rng.random() < 0.15 else None,
        roles_fill_pools=bool(rng.random() < 0.15),
    )  # fmt: skip


def _role(rng, name: str, cluster: Cluster, hosts: bool, special: bool, most: int) -> Role:
    total = len(cluster.gpus)
    pinned: frozenset[GpuId] = frozenset()
    excluded: frozenset[GpuId] = frozenset()
    if special and rng.random() < 0.4:
        pinned = _some(rng, cluster, int(rng.integers(1, min(total, 4) + 1)))
    elif special and rng.random() < 0.6:
        excluded = _some(rng, cluster, int(rng.integers(1, max(2, total // 2))))
    return Role(
        name,
        "rollout",
        options=_options(rng, cluster, hosts, most),
        min_gpus=int(rng.integers(1, 4)) if rng.random() < 0.15 else 1,
        max_gpus=int(rng.integers(1, total + 1)) if rng.random() < 0.15 else None,
        pinned_gpus=pinned,
        excluded_gpus=excluded,
        cpu_cores_per_gpu=float(rng.choice([0.0, 0.5, 1.0, 2.0])) if hosts else 0.0,
        host_memory_mib_per_gpu=float(rng.choice([0.0, 50.0, 100.0])) if hosts else 0.0,
    )


def _some(rng, cluster: Cluster, count: int) -> frozenset[GpuId]:
    gpus = list(cluster.gpus)
    if rng.random() < 0.5:  # neighbours, as people pin
        first = int(rng.integers(len(gpus) - count + 1))
        return frozenset(gpus[first : first + count])
    return frozenset(gpus[int(at)] for at in rng.choice(len(gpus), count, replace=False))


def _options(rng, cluster: Cluster, hosts: bool, most: int) -> tuple[StageOption, ...]:
    total = len(cluster.gpus)
    work = float(rng.uniform(2.0, 40.0))
    static = float(rng.uniform(50.0, 500.0))
    sleeps = rng.random() < 0.7
    forms = [
        (gpu_class, size, replicas)
        for gpu_class in cluster.gpu_classes
        for size in LAYOUTS
        for replicas in range(1, total // size + 1)
    ]
    odds = np.array([1.0 / (size * replicas) for _, size, replicas in forms]) ** 0.7
    number = min(len(forms), int(rng.integers(2, most + 2)))
    chosen = rng.choice(len(forms), number, replace=False, p=odds / odds.sum())
    options = []
    for gpu_class, size, replicas in (forms[int(at)] for at in sorted(chosen)):
        speed = (size * replicas) ** float(rng.uniform(0.5, 1.05)) * (1.4 if gpu_class == "b" else 1.0)
        value = work / speed * float(rng.uniform(0.9, 1.1))
        kept = static / size**0.5
        options.append(
            StageOption(
                gpu_class, LAYOUTS[size], replicas,
                Estimate(value, 0.9 * value, 1.2 * value, "s", Origin.MEASURED),
                peak_mib=kept + float(rng.uniform(100.0, 700.0)),
                static_mib=kept,
                asleep_mib=float(rng.uniform(0.0, 60.0)),
                host_static_mib=float(rng.choice([0.0, 30.0, 120.0])) if hosts else 0.0,
                sleep_s=float(rng.uniform(0.0, 0.5)) if sleeps else None,
                wake_s=float(rng.uniform(0.0, 0.5)) if sleeps else None,
                stream=Stream(10.0 * luck * value, value) if (luck := float(rng.random())) < 0.05 else None,
                offloaded_host_mib=float(rng.choice([0.0, 0.0, 40.0])) if hosts else 0.0,
            )
        )  # fmt: skip
    return tuple(options)


def with_sharing(problem: Problem, seed: int) -> Problem:
    """Let pairs of tasks take two pools in turn."""
    rng = np.random.default_rng(seed)
    coupling = Coupling(CouplingKind.SYNC)
    able = [task.id for task in problem.tasks if len(task.gpu_roles) >= 2][:3]
    tasks = tuple(_sharing_task(rng, task, coupling) if task.id in able else task for task in problem.tasks)
    problem = replace(problem, tasks=tasks)
    pairs = [tuple(able[at : at + 2]) for at in range(len(able) - 1)]
    return replace(problem, sharing=tuple(Sharing(SharingKind.TURNS, pair) for pair in pairs))


def _sharing_task(rng, task: Task, coupling: Coupling) -> Task:
    def smaller(option: StageOption) -> StageOption:
        part = float(rng.uniform(0.2, 0.6))
        return replace(option, peak_mib=part * option.peak_mib, static_mib=part * option.static_mib)

    roles = tuple(
        replace(
            role,
            options=tuple(map(smaller, role.options)),
            pinned_gpus=frozenset(),
            excluded_gpus=frozenset(),
        )
        for role in task.roles
    )
    names = set(Arrangement)
    if rng.random() < 0.6:  # apart, half of the GPUs stand idle
        names -= {Arrangement.COLOCATED}
    return replace(
        task, roles=roles, coupling=coupling, min_gpus=0, max_gpus=None, arrangements=frozenset(names)
    )

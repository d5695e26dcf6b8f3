"""The problem that a solver gets: the cluster and, for every task, the costs of each role in each form.

All numbers are already priced by the cost models, so that solvers, the verifier and the test
oracle read one frozen table and nothing in it can drift during a solve.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from libra_plan.models.parallelism import Layout
from libra_plan.models.stage_option import Coupling, CouplingKind, StageOption
from libra_plan.models.topology import Cluster, GpuId

__all__ = [
    "LEAST_KEPT",
    "Arrangement",
    "Coupling",
    "CouplingKind",
    "Deadline",
    "IncumbentRole",
    "IncumbentTask",
    "IncumbentWorkers",
    "Policy",
    "Problem",
    "Quota",
    "Role",
    "Sharing",
    "SharingKind",
    "StageOption",
    "Task",
]


class Policy(str, Enum):
    """What the plan maximises."""

    THROUGHPUT = "throughput"
    MAX_MIN = "max-min"
    PRIORITY = "priority"
    FAIR_SHARE = "fair-share"


class Arrangement(str, Enum):
    """Name the shapes of a configuration that a task's framework allows."""

    COLOCATED = "colocated"
    SEPARATE = "separate"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class Role:
    """A part of a task. A CPU-only role has no options and `cpu_cores`/`host_memory_mib` to place.

    `cpu_cores_per_gpu` and `host_memory_mib_per_gpu` are taken on the node of each GPU; the plain
    `cpu_cores` and `host_memory_mib` (for the whole role, in `cpu_workers` equal parts that may go
    to different nodes) are for CPU-only roles. `pinned_gpus`, when not empty, is exactly the set
    of GPUs the role runs on.
    """

    id: str
    kind: str
    options: tuple[StageOption, ...] = ()
    min_gpus: int = 1
    max_gpus: int | None = None
    pinned_gpus: frozenset[GpuId] = frozenset()
    excluded_gpus: frozenset[GpuId] = frozenset()
    cpu_cores_per_gpu: float = 0.0
    host_memory_mib_per_gpu: float = 0.0
    cpu_workers: int = 0
    cpu_cores: float = 0.0
    host_memory_mib: float = 0.0
    refusals: tuple[str, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether the role holds GPUs; CPU-only roles do not."""
        return self.cpu_workers == 0


LEAST_KEPT = 0.01
"""Share of its value that a task keeps when it moves, however long that takes: a task whose GPUs are
gone must start again somewhere, and never doing so is worse."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """So many steps within so many seconds from now; a restart takes its part of that time."""

    steps: float
    within_s: float


@dataclass(frozen=True, slots=True)
class Task:
    """A post-training job: its roles in stage order, how they couple, and its weight.

    `roles_fill_pools`: the framework wants every role of a pool on all of the pool's GPUs (verl and
    RLinf do); otherwise a role may use some of them.

    `sync_s` is the weight hand-over from training to rollout per step, seconds, charged when they
    are in different pools. `restart_s` is the work lost when its placement changes, seconds.

    What policies read (docs/policies.md): `tier` (0 first), `team` whose quota it uses, `deadline`
    and `min_steps_per_s` that it must keep, `latency_first` when its step time comes before any
    policy, and `waited_s`, the seconds it has been queued.
    """

    id: str
    weight: float
    roles: tuple[Role, ...]
    coupling: Coupling
    arrangements: frozenset[Arrangement] = frozenset(Arrangement)
    samples_per_step: float | None = None
    tokens_per_step: float | None = None
    sync_s: float = 0.0
    restart_s: float = 0.0
    min_gpus: int = 0
    max_gpus: int | None = None
    roles_fill_pools: bool = False
    tier: int = 0
    team: str | None = None
    deadline: Deadline | None = None
    min_steps_per_s: float | None = None
    latency_first: bool = False
    waited_s: float = 0.0

    @property
    def gpu_roles(self) -> tuple[Role, ...]:
        """List the roles that hold GPUs, in stage order."""
        return tuple(role for role in self.roles if role.on_gpu)


@dataclass(frozen=True, slots=True)
class IncumbentRole:
    """What a role of the running plan holds: its layout and the GPUs of each replica, in order.

    Roles of one task with the same `share_group` take those GPUs in turn. `mix` lists the layouts of
    the replicas where they differ or serve ranks of lengths; `layout` is then the largest.
    """

    role: str
    layout: Layout
    replicas: tuple[tuple[GpuId, ...], ...]
    share_group: str
    mix: tuple[Layout, ...] = ()

    @property
    def placed(self) -> frozenset[tuple[Layout, tuple[GpuId, ...]]]:
        """Return which layout is on which GPUs, whatever the order of replicas."""
        return frozenset(zip(self.mix or (self.layout,) * len(self.replicas), self.replicas, strict=True))


@dataclass(frozen=True, slots=True)
class IncumbentWorkers:
    """Workers of a CPU-only role of the running plan on one node."""

    role: str
    node: str
    workers: int


@dataclass(frozen=True, slots=True)
class IncumbentTask:
    """A task of the running plan and what it holds; changing any of its GPUs costs `Task.restart_s`.

    `workers` of a task that keeps its GPUs stay where they are as long as there is room.
    """

    task: str
    roles: tuple[IncumbentRole, ...]
    workers: tuple[IncumbentWorkers, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    """The GPUs a team may count on: `gpus` in all, and no more of a class than `gpus_of_class` says."""

    team: str
    gpus: int
    gpus_of_class: tuple[tuple[str, int], ...] = ()


class SharingKind(str, Enum):
    """What tasks that run jointly share (docs/design/003-shared-tasks.md)."""

    TURNS = "turns"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Tasks that may run jointly, where that has a higher value than running them apart.

    `turns`: two sync tasks take the same two pools in turn; while one trains the other rolls out.
    """

    kind: SharingKind
    tasks: tuple[str, ...]

    @property
    def id(self) -> str:
        """Name the tasks that run jointly, as one."""
        return "+".join(self.tasks)


@dataclass(frozen=True)
class Problem:
    """A planning problem: a cluster, and every way to run each role of each task, with its price.

    Attributes
    ----------
    cluster
        The nodes and GPUs.
    tasks
        The tasks, each with its roles and their priced options.
    running
        What the tasks of the running plan hold; moving away from it costs.
    policy
        What is maximised.
    horizon_s
        The time over which a change must pay for itself.
    input_digests
        The SHA-256 of every file that the problem was made from.
    quotas
        The GPUs of each team.
    budget_per_hour
        The most the plan's GPUs may cost, in the currency of the cluster's prices.
    aging_s
        A task that has waited w seconds counts 1 + w ÷ `aging_s` times; None: waiting adds nothing.
    sharing
        The sets of tasks that may run jointly; nothing else is shared between tasks.

    Examples
    --------
    >>> import libra_plan as lp
    >>> problem = lp.price("profiles", gpus=8)
    >>> [len(role.options) for role in problem.task_of["eval-7b"].roles]
    [8, 8]
    """

    cluster: Cluster
    tasks: tuple[Task, ...]
    running: tuple[IncumbentTask, ...] = ()
    policy: Policy = Policy.THROUGHPUT
    horizon_s: float = 3600.0
    input_digests: dict[str, str] = field(default_factory=dict)
    quotas: tuple[Quota, ...] = ()
    budget_per_hour: float | None = None
    aging_s: float | None = None
    sharing: tuple[Sharing, ...] = ()

    @cached_property
    def sharing_now(self) -> frozenset[str]:
        """Name the running tasks that hold a GPU which another one holds, too."""
        holders: dict[GpuId, set[str]] = {}
        for held in self.running:
            for role in held.roles:
                for replica in role.replicas:
                    for gpu in replica:
                        holders.setdefault(gpu, set()).add(held.task)
        return frozenset(name for names in holders.values() if len(names) > 1 for name in names)

    @cached_property
    def task_of(self) -> dict[str, Task]:
        """Map tasks by id."""
        return {task.id: task for task in self.tasks}

"""The problem a solver gets: the cluster and, for every task, what each role costs in each form.

All numbers are already priced by the cost models, so that solvers, the verifier and the test
oracle read one frozen table and nothing in it can drift during a solve.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from libra_plan.models.parallelism import Layout, RangedReplica
from libra_plan.models.quantities import Estimate
from libra_plan.models.streaming import Stream
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
    """Say what the plan maximises."""

    THROUGHPUT = "throughput"
    MAX_MIN = "max-min"
    PRIORITY = "priority"
    FAIR_SHARE = "fair-share"


class CouplingKind(str, Enum):
    """Say how the pools of one phase run against each other (design: vocabulary, `coupling`)."""

    SYNC = "sync"
    ASYNC = "async"
    PIPELINED = "pipelined"


class Arrangement(str, Enum):
    """Name the shapes of a configuration that a task's framework allows."""

    COLOCATED = "colocated"
    SEPARATE = "separate"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class Coupling:
    """How pools overlap: `sync` adds times, `async` takes the largest, `pipelined` in between.

    `groups` is the number of micro-groups a pipelined step is cut into: with pool times t_i the
    phase takes Σt_i/groups + (1 − 1/groups)·max t_i. `staleness` η is the bound async runs under,
    in policy versions; it must be ≥ 1 for async and 0 for sync: no more than (1 + η) steps' worth of
    trajectories may have begun and not yet been trained on. `batches`: async rollouts generate a step's
    trajectories as one batch, and do not begin the next before it is done.
    """

    kind: CouplingKind
    staleness: int = 0
    groups: int | None = None
    batches: bool = False

    @property
    def streams(self) -> bool:
        """Tell whether its rollouts never drain."""
        return self.kind is CouplingKind.ASYNC and not self.batches


@dataclass(frozen=True, slots=True)
class StageOption:
    """One way to run one role: layout and replicas on a GPU class, with its price.

    `time_s`: seconds for the role's work of one step. Memory is per GPU, MiB: `peak_mib` while the
    role works (upper bound), `static_mib` of it that stays when it pauses with its state resident,
    `asleep_mib` what remains when its state is put to host memory. `host_static_mib` per GPU is
    what that state then takes there. `sleep_s` and `wake_s` are the seconds to put it to sleep and
    to wake it, None when the role cannot sleep. `offloaded_host_mib` per GPU is on the host always, asleep
    or at work: state offloaded there. `stream`: what an async
    rollout that never drains is made of; its price holds only where the role keeps its GPUs all the time, not
    where it shares them in turns.

    A rollout that serves trajectories by the rank of their length has `mix`: the layout of every
    replica and the ranks it serves. `layout` is then the largest of them, `replicas` their number.
    """

    gpu_class: str
    layout: Layout
    replicas: int
    time_s: Estimate
    peak_mib: float
    static_mib: float
    asleep_mib: float
    host_static_mib: float
    sleep_s: float | None
    wake_s: float | None
    notes: tuple[str, ...] = ()
    stream: Stream | None = None
    mix: tuple[RangedReplica, ...] = ()
    offloaded_host_mib: float = 0.0

    @property
    def gpus(self) -> int:
        """Count the GPUs it takes."""
        if not self.mix:
            return self.layout.gpus_per_replica * self.replicas
        return sum(each.layout.gpus_per_replica for each in self.mix)

    @property
    def switch_s(self) -> float:
        """Give the seconds to fall asleep and wake up once; 0 where that cannot be."""
        return (self.sleep_s or 0.0) + (self.wake_s or 0.0)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """List the layout of every replica."""
        return tuple(each.layout for each in self.mix) or (self.layout,) * self.replicas

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """Count replicas by their GPUs: (GPUs, replicas), largest first."""
        if not self.mix:
            return ((self.layout.gpus_per_replica, self.replicas),)
        found = Counter(layout.gpus_per_replica for layout in self.layouts)
        return tuple(sorted(found.items(), reverse=True))

    @property
    def form(self) -> str:
        """Say how many replicas of which layouts it has: `2 × tp4`, or `1 × tp4 + 6 × tp1`."""
        return " + ".join(f"{number} × {layout}" for layout, number in Counter(self.layouts).items())


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
        """Tell roles that hold GPUs from CPU-only ones."""
        return self.cpu_workers == 0


LEAST_KEPT = 0.01
"""Part of its worth that a task keeps when it moves, however long that takes: a task whose GPUs are
gone must start again somewhere, and never doing so is worse."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """So many steps within so many seconds from now; a restart takes its part of that time."""

    steps: float
    within_s: float


@dataclass(frozen=True, slots=True)
class Task:
    """A post-training job: its roles in stage order, how they couple, and what it is worth.

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
        """Give which layout is on which GPUs, whatever the order of replicas."""
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
    """Say what tasks that run jointly share (docs/design/003-shared-tasks.md)."""

    TURNS = "turns"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Tasks that may run jointly, where that is worth more than running them apart.

    `turns`: two sync tasks take the same two pools in turn; while one trains the other rolls out.
    `engine`: one engine, alone in its pool, serves the rollouts of all; `rollouts` names the role of
    each task, in the order of `tasks`, that it stands for, and `options` price it at their joint load.
    `refusals` say why it has no more of them.
    """

    kind: SharingKind
    tasks: tuple[str, ...]
    rollouts: tuple[str, ...] = ()
    options: tuple[StageOption, ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Name the tasks that run jointly, as one."""
        return "+".join(self.tasks)


@dataclass(frozen=True)
class Problem:
    """A frozen planning problem. `horizon_s`: time over which a change must pay for itself.

    `budget_per_hour` is the most the plan's GPUs may cost, in the currency of the cluster's prices.
    A queued task counts (1 + waited_s ÷ aging_s) times; None: waiting adds nothing. `sharing` lists
    the sets of tasks that may run jointly; nothing else is shared between tasks.
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

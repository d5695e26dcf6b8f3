"""The plan: how each task runs, on which GPUs, its objective and the bound on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from libra_plan.errors import InputError
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate
from libra_plan.models.topology import GpuId
from libra_plan.notes import Notes, log_note
from libra_plan.planner.problem import (
    IncumbentRole,
    IncumbentTask,
    IncumbentWorkers,
    Problem,
    SharingKind,
    StageOption,
)
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from pandas import DataFrame

    from libra_plan.planner.launchers.manifest import Manifest

__all__ = [
    "Certificate",
    "Configuration",
    "CpuShare",
    "DeadlineSlack",
    "JointRun",
    "MemoryMode",
    "Pass",
    "Phase",
    "PlacedRole",
    "Plan",
    "Pool",
    "QueuedTask",
    "RoleChoice",
    "RunningTask",
    "Status",
    "TeamShare",
    "held_by",
]


class MemoryMode(str, Enum):
    """What roles of a shared pool do with their state while another role works."""

    RESIDENT = "resident"
    SLEEP = "sleep"


class Status(str, Enum):
    """What is known about the plan's objective."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"


@dataclass(frozen=True, slots=True)
class RoleChoice:
    """A role with the option it runs in."""

    role: str
    option: StageOption

    @property
    def layout(self) -> Layout:
        """Return the layout of one replica."""
        return self.option.layout


@dataclass(frozen=True, slots=True)
class Pool:
    """A set of GPUs, in `blocks` equal blocks of `block_gpus`, that its roles take in turn.

    A block never straddles a node unless it fills whole nodes. A role may use fewer GPUs than the
    pool has.
    """

    gpu_class: str
    choices: tuple[RoleChoice, ...]
    block_gpus: int
    blocks: int
    memory_mode: MemoryMode
    peak_mib: float
    cpu_cores_per_gpu: float = 0.0
    host_memory_mib_per_gpu: float = 0.0

    @property
    def gpus(self) -> int:
        """Count the GPUs."""
        return self.block_gpus * self.blocks


@dataclass(frozen=True, slots=True)
class Phase:
    """Pools on disjoint GPUs that run against each other as the task's coupling says."""

    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One complete way to run one task: phases that take the same GPUs one after the other.

    Nearly always there is one phase. `blocks` lists (GPU class, block size, number) over the whole
    configuration. `step_time_s` includes the switches inside pools and the weight hand-over.
    """

    task: str
    phases: tuple[Phase, ...]
    step_time_s: Estimate
    blocks: tuple[tuple[str, int, int], ...]
    peak_mib: float

    @property
    def gpus(self) -> int:
        """Count the GPUs the configuration holds."""
        return sum(size * number for _, size, number in self.blocks)

    @property
    def steps_per_s(self) -> float:
        """Return the throughput, steps per second."""
        return 1.0 / self.step_time_s.value

    @property
    def bottleneck(self) -> tuple[str, float]:
        """Return the role that takes longest, and its share of the step (others may overlap with it)."""
        times = {
            choice.role: choice.option.time_s.value
            for phase in self.phases
            for pool in phase.pools
            for choice in pool.choices
        }
        role = max(times, key=lambda name: times[name])
        return role, times[role] / self.step_time_s.value


@dataclass(frozen=True, slots=True)
class PlacedRole:
    """A role on GPUs: `replicas[i]` lists the GPUs of replica i in rank order.

    Replicas are in the order of nodes, or in that of the option's `mix`.
    """

    role: str
    choice: RoleChoice
    replicas: tuple[tuple[GpuId, ...], ...]

    @property
    def gpus(self) -> tuple[GpuId, ...]:
        """List all GPUs in rank order: by replica, then by rank within it."""
        return tuple(gpu for replica in self.replicas for gpu in replica)

    @property
    def placed(self) -> frozenset[tuple[Layout, tuple[GpuId, ...]]]:
        """Return which layout is on which GPUs, whatever the order of replicas."""
        return frozenset(zip(self.choice.option.layouts, self.replicas, strict=True))


@dataclass(frozen=True, slots=True)
class CpuShare:
    """Workers of a CPU-only role on one node."""

    role: str
    node: str
    workers: int


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task with its configuration, its GPUs and its throughput against its weighted fair share."""

    task: str
    configuration: Configuration
    roles: tuple[PlacedRole, ...]
    cpu: tuple[CpuShare, ...]
    normalised: float
    moved: bool = False

    @property
    def gpus(self) -> tuple[GpuId, ...]:
        """List the GPUs it holds, each once, in order."""
        return tuple(sorted({gpu for role in self.roles for gpu in role.gpus}))


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task that waits: a stable code for scripts and a sentence for people."""

    task: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of a search that settles several things in order, and what no plan could better.

    `tier N`: objective of its tasks with the tiers above fixed; `quota`: objective within quotas, and
    `borrow` beyond them; `latency-first`: weighted step time, seconds, less is better. `duals` prove a
    bound as those of the certificate do, where there are any.
    """

    name: str
    objective: float
    bound: float
    duals: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class DeadlineSlack:
    """A deadline the plan does not keep, and the least relaxation of it.

    Rates in steps per second: what it asks (None: no rate is enough, because moving the task takes
    the whole time), what the plan gives, and the best there is with the task alone on the cluster
    and with every deadline that is kept (None: not known).
    """

    task: str
    wanted_steps_per_s: float | None
    steps_per_s: float
    best_alone_steps_per_s: float | None
    best_beside_steps_per_s: float | None
    code: str = "deadline"


@dataclass(frozen=True, slots=True)
class TeamShare:
    """What a team has: GPUs, those of them beyond its quota, and its objective, within quotas and now."""

    team: str
    quota_gpus: int
    gpus: int
    borrowed_gpus: int
    worth_at_quota: float
    worth: float


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is proven: no plan of this problem has a larger objective than `bound`.

    `gap` = (bound − objective) / max(|objective|, 1e-9). `bounds` names every bound that was
    computed (`lp`, `cp-sat`); `bound` is the least of them. `baselines` holds the objectives of
    the equal split, greedy and running plans, where they exist. `cost_per_hour` is None when a GPU
    class in use has no price. `passes`, `deadlines` and `teams` are what policies add.
    `duals` maps constraints, by name, to the dual price π ≥ 0 that proves the `lp` bound:
    Σ limit · π + Σ over tasks of max(0, max over configurations of value − use · π).
    """

    policy: str
    status: Status
    objective: float
    bound: float
    gap: float
    bounds: tuple[tuple[str, float], ...] = ()
    baselines: tuple[tuple[str, float], ...] = ()
    configurations: int = 0
    deterministic: bool = False
    cost_per_hour: float | None = None
    budget_per_hour: float | None = None
    passes: tuple[Pass, ...] = ()
    deadlines: tuple[DeadlineSlack, ...] = ()
    teams: tuple[TeamShare, ...] = ()
    duals: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class JointRun:
    """Tasks that run jointly, in one configuration that covers all of them; its roles are named `task/role`.

    The first task works in the first pool while the second works in the second, then they change places. Each
    running task states its part of this configuration.
    """

    kind: SharingKind
    tasks: tuple[str, ...]
    configuration: Configuration


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """How each task runs, on which GPUs, which tasks wait and why, and the objective with its bound.

    Attributes
    ----------
    running
        The tasks that run, in the order of the workload, each with its configuration and its GPUs.
    queued
        The tasks that wait, each with a code and a reason.
    certificate
        The objective, the bounds on it and what else is known of the plan.
    joint
        The tasks that share pools.
    problem
        The problem that the plan solves; None for a plan that `solve` did not return.
    proven_by
        How the verifier recomputed the bound, `dual prices` or `search`; None: the bound is only claimed.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8)
    >>> [(running.task, len(running.gpus)) for running in plan.running]
    [('agent-7b', 2), ('reward-1.5b', 4), ('eval-7b', 2)]
    """

    running: tuple[RunningTask, ...]
    queued: tuple[QueuedTask, ...]
    certificate: Certificate
    joint: tuple[JointRun, ...] = ()
    problem: Problem | None = field(default=None, compare=False)
    proven_by: str | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        proof = self.certificate
        gpus = {gpu for running in self.running for gpu in running.gpus}
        holds = f"{counted(len(self.running), 'task')} on {counted(len(gpus), 'GPU')}"
        return (
            f"Plan({proof.status.value}: {holds}, "
            f"{len(self.queued)} waiting, objective {proof.objective:.6f}, bound {proof.bound:.6f})"
        )

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """List the configurations that hold GPUs, each GPU in one of them."""
        covered = {task for run in self.joint for task in run.tasks}
        apart = (running.configuration for running in self.running if running.task not in covered)
        return (*apart, *(run.configuration for run in self.joint))

    @property
    def known_problem(self) -> Problem:
        """The problem that the plan solves; an error where the plan does not know it."""
        if self.problem is None:
            raise InputError(
                "this plan does not know its problem",
                way_out="take the plan that `solve` returns, or dataclasses.replace(plan, problem=problem)",
            )
        return self.problem

    def summary(self) -> str:
        """Return the plan as tables: roles, tasks, the map of GPUs, what waits, and the proof.

        Returns
        -------
        str
            What `libra-plan solve` prints.

        Raises
        ------
        InputError
            If the plan does not know its problem.

        Examples
        --------
        >>> import libra_plan as lp
        >>> print(lp.solve("profiles", gpus=8).summary().splitlines()[-1])
        for comparison: equal-split 3.351905, greedy 4.350022
        """
        from libra_plan.planner.report.plan_text import plan_text

        return plan_text(self.known_problem, self)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, which JSON and YAML can hold.

        Returns
        -------
        dict[str, Any]
            `running`, `queued`, `certificate`, `joint` and `proven_by`.

        Raises
        ------
        Nothing of its own.

        Examples
        --------
        >>> import libra_plan as lp
        >>> lp.solve("profiles", gpus=8).to_dict()["certificate"]["status"]
        'optimal'
        """
        data: dict[str, Any] = msgspec.to_builtins(replace(self, problem=None), str_keys=True)
        del data["problem"]
        return data

    def to_frame(self) -> DataFrame:
        """Return the plan as a pandas table, one row for each role of a running task.

        Roles on CPUs are in it, with their workers as replicas, without GPUs and without figures of a
        stage. Tasks that wait are not: `queued` lists them.

        Returns
        -------
        pandas.DataFrame
            The task and role with layout, GPUs, seconds, memory, step, rates and fair share.

        Raises
        ------
        InputError
            If pandas is not installed, or the plan does not know its problem.

        Examples
        --------
        >>> import libra_plan as lp
        >>> frame = lp.solve("profiles", gpus=8).to_frame()
        >>> frame.groupby("task", sort=False)["step_s"].first().round().to_dict()
        {'agent-7b': 849.0, 'reward-1.5b': 26.0, 'eval-7b': 151.0}
        """
        from libra_plan.planner.report.plan_frame import plan_frame

        return plan_frame(self.known_problem, self)

    def _repr_html_(self) -> str:
        from libra_plan.planner.report.plan_html import plan_html

        return plan_html(self.known_problem, self)

    def draw(self, path: str | Path) -> None:
        """Draw the plan as SVG: one lane for each GPU, one bar for each stage, over the longest step.

        Parameters
        ----------
        path
            The file to write; its name ends in .svg.

        Raises
        ------
        InputError
            If the file is no SVG or cannot be written, or the plan does not know its problem.

        Examples
        --------
        >>> import libra_plan as lp
        >>> lp.solve("profiles", gpus=8).draw("plan.svg")
        """
        from libra_plan.planner.report.plan_picture import write_plan_svg

        write_plan_svg(self.known_problem, self, Path(path))

    def to_manifest(self, name: str = "libra-plan") -> Manifest:
        """Return the placement manifest that launchers start.

        Parameters
        ----------
        name
            The name of the plan; a plan made from a running one keeps that one's name.

        Returns
        -------
        Manifest
            The manifest, sealed; the running plan's, where this plan adds nothing to it.

        Raises
        ------
        InputError
            If the plan does not know its problem, or a name in it fits no manifest.

        Examples
        --------
        >>> import libra_plan as lp
        >>> lp.solve("profiles", gpus=8).to_manifest().metadata.generation
        1
        """
        from libra_plan.planner.saving import manifest_of

        return manifest_of(self, name)

    def save(self, out: str | Path, name: str = "libra-plan", notes: Notes = log_note) -> Manifest:
        """Write the manifest to a folder, from which `launch`, `emit` and `replan` take it.

        Parameters
        ----------
        out
            The folder.
        name
            The name of the plan.
        notes
            A function that gets a line on what was written. Default: it is logged.

        Returns
        -------
        Manifest
            The manifest that lies in the folder now.

        Raises
        ------
        InputError
            If the folder cannot be written to, or holds the manifest of another plan than the one
            that this plan was made from.

        Examples
        --------
        >>> import libra_plan as lp
        >>> lp.solve("profiles", gpus=8).save("run").metadata.name
        'libra-plan'
        """
        from libra_plan.planner.saving import save_plan

        return save_plan(self, Path(out), name=name, notes=notes)


def held_by(plan: Plan) -> tuple[IncumbentTask, ...]:
    """Return what a plan's tasks hold once it runs; roles that take GPUs in turn share a group."""
    return tuple(_held(running) for running in plan.running)


def _held(running: RunningTask) -> IncumbentTask:
    pools = [pool for phase in running.configuration.phases for pool in phase.pools]
    groups = {
        choice.role: f"pool{number}"
        for number, pool in enumerate(pools)
        for choice in pool.choices
        if len(pool.choices) > 1
    }
    roles = tuple(
        IncumbentRole(
            each.role,
            each.choice.layout,
            each.replicas,
            groups.get(each.role, each.role),
            each.choice.option.layouts if each.choice.option.mix else (),
        )
        for each in running.roles
    )
    workers = tuple(IncumbentWorkers(share.role, share.node, share.workers) for share in running.cpu)
    return IncumbentTask(running.task, roles, workers)

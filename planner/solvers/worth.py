"""What a column is worth: throughput against the task's weighted fair share, less switching.

normalised = throughput ÷ throughput of the task alone on its weighted fair share of the GPUs
worth      = weight · normalised · (1 − restart_s ÷ horizon_s when the task's placement changes)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.columns import ColumnTable, columns_of
from libra_plan.planner.columns.capacity import block_rooms
from libra_plan.planner.columns.needs import block_needs, gpus_in_blocks, host_needs
from libra_plan.planner.plan import Column
from libra_plan.planner.problem import HeldTask, Problem, Role, Task
from libra_plan.planner.solvers.held import held_columns

__all__ = [
    "Candidate",
    "TaskCandidates",
    "candidates_of",
    "fair_share_gpus",
    "host_of_held",
    "hosts_may_bind",
    "reference_steps_per_s",
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A column as the master sees it. `held` is set when it keeps the GPUs the task runs on.

    It then takes exactly those: `held_gpus` lists (GPU class, GPUs) node by node.
    """

    column: Column
    normalised: float
    worth: float
    held: HeldTask | None = None
    held_gpus: tuple[tuple[str, int], ...] = ()
    held_host: tuple[float, float] = (0.0, 0.0)

    def gpus_in_blocks(self, gpu_class: str, at_least: int, full_node_gpus: int) -> int:
        """Count the GPUs it takes in blocks of at least one size."""
        if self.held is None:
            return gpus_in_blocks(self.column, gpu_class, at_least, full_node_gpus)
        here = [gpus for name, gpus in self.held_gpus if name == gpu_class]
        return at_least * block_rooms(here, at_least, full_node_gpus)

    @property
    def host(self) -> tuple[float, float]:
        """Give the CPU cores and the host memory (MiB) that its GPUs take."""
        return host_needs(self.column) if self.held is None else self.held_host

    @property
    def moved_mib(self) -> float:
        """Give the state to be moved when it is chosen, MiB (0 when it keeps its GPUs)."""
        if self.held is not None:
            return 0.0
        return sum(
            choice.option.static_mib * choice.option.gpus
            for phase in self.column.phases
            for pool in phase.pools
            for choice in pool.choices
        )


@dataclass(frozen=True, slots=True)
class TaskCandidates:
    """A task with everything it may be given."""

    task: Task
    candidates: tuple[Candidate, ...]
    reference_steps_per_s: float | None
    dropped: int
    running: bool
    exact: bool = True
    """No column that was dropped could be placed where those that beat it cannot."""


def fair_share_gpus(problem: Problem, task: Task) -> float:
    """Give the task's weighted fair share of the cluster, GPUs."""
    weights = sum(each.weight for each in problem.tasks)
    return len(problem.cluster.gpus) * task.weight / weights


def reference_steps_per_s(columns: ColumnTable, share: float) -> float | None:
    """Give the best throughput on a fair share, steps/s; None when the task has no column.

    A task that does not run on its share at all is held against the smallest number of GPUs it
    runs on, scaled down to the share.
    """
    if not len(columns):
        return None
    within = columns.seconds[columns.gpus <= share + 1e-9]
    if len(within):
        return float(1.0 / within.min())
    smallest = np.lexsort((columns.seconds, columns.gpus))[0]
    return float(share / columns.gpus[smallest] / columns.seconds[smallest])


def candidates_of(problem: Problem, shares_of: Problem) -> list[TaskCandidates]:
    """List every task's candidates: its columns, and the placement it already holds.

    Fair shares are those of `shares_of`, nearly always the problem itself.
    """
    held_tasks = {held.task: held for held in problem.running}
    bind = hosts_may_bind(problem)
    return [_of_task(problem, task, held_tasks.get(task.id), shares_of, bind) for task in problem.tasks]


def hosts_may_bind(problem: Problem) -> bool:
    """Tell whether any node could run out of CPU cores or host memory, whatever is put on it."""
    cores = max((sum(role.cpu_cores_per_gpu for role in task.gpu_roles) for task in problem.tasks), default=0)
    host_mib = max((sum(map(_most_host_mib, task.gpu_roles)) for task in problem.tasks), default=0)
    workers = [role for task in problem.tasks for role in task.roles if not role.on_gpu]
    return any(
        cores * len(node.gpus) + sum(role.cpu_cores for role in workers) > (node.cpu_cores or 0.0)
        or host_mib * len(node.gpus) + sum(role.host_memory_mib for role in workers)
        > (node.host_memory_mib or 0.0)
        for node in problem.cluster
    )


def _most_host_mib(role: Role) -> float:
    return role.host_memory_mib_per_gpu + max(
        (option.host_static_mib for option in role.options), default=0.0
    )


def _of_task(
    problem: Problem, task: Task, held: HeldTask | None, shares_of: Problem, hosts_bind: bool
) -> TaskCandidates:
    columns = columns_of(task, problem.cluster, hosts_bind=hosts_bind)
    of_shares = columns if shares_of is problem else columns_of(task, shares_of.cluster)
    reference = reference_steps_per_s(of_shares, fair_share_gpus(shares_of, task))
    found: list[Candidate] = []
    if reference is not None:
        for kept in held_columns(problem, task, held) if held is not None else ():
            normalised = kept.steps_per_s / reference
            worth = task.weight * normalised
            on, host = _taken(problem.cluster, kept, held)
            found.append(Candidate(kept, normalised, worth, held, on, host))
        stay = 1.0 if held is None else max(0.0, 1.0 - task.restart_s / problem.horizon_s)
        for column in columns.columns:
            normalised = column.steps_per_s / reference
            found.append(Candidate(column, normalised, task.weight * normalised * stay))
    return TaskCandidates(task, tuple(found), reference, columns.dropped, held is not None, columns.exact)


def _taken(
    cluster: Cluster, column: Column, held: HeldTask | None
) -> tuple[tuple[tuple[str, int], ...], tuple[float, float]]:
    """Count the GPUs a kept task takes node by node, and the cores and host memory of all of them."""
    per_gpu = host_of_held(column, held) if held else {}
    nodes = Counter((cluster.gpus[gpu].gpu_class, gpu.node) for gpu in per_gpu)
    cores, host_mib = (sum(need[at] for need in per_gpu.values()) for at in (0, 1))
    return tuple((name, gpus) for (name, _), gpus in nodes.items()), (cores, host_mib)


def host_of_held(column: Column, held: HeldTask) -> dict[GpuId, tuple[float, float]]:
    """Map each GPU a kept task holds to the CPU cores and host memory (MiB) it takes on its node."""
    gpus = {role.role: [gpu for replica in role.replicas for gpu in replica] for role in held.roles}
    found: dict[GpuId, tuple[float, float]] = {}
    for need in block_needs(column):
        names = gpus if need.pool is None else [c.role for c in column.phases[0].pools[need.pool].choices]
        for name in names:
            each = (need.cpu_cores_per_gpu, need.host_memory_mib_per_gpu)
            found.update(dict.fromkeys(gpus[name], each))
    return found

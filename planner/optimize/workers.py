"""CPU workers of tasks that keep their GPUs: they stay on their nodes, too, if possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from libra_plan.models.topology import Cluster
from libra_plan.planner.optimize.objective import TaskCandidates
from libra_plan.planner.plan import CpuShare
from libra_plan.planner.problem import IncumbentTask, Task

__all__ = ["kept_workers", "take_room"]


def kept_workers(
    cluster: Cluster, tasks: Sequence[TaskCandidates], held: Mapping[int, IncumbentTask]
) -> dict[int, tuple[CpuShare, ...]]:
    """Return the shares of every kept task whose workers are still those it needs, on nodes there are."""
    found = {}
    for t, each in held.items():
        task = tasks[t].task
        shares = tuple(CpuShare(one.role, one.node, one.workers) for one in each.workers)
        wanted = {role.id: role.cpu_workers for role in task.roles if not role.on_gpu}
        placed: Counter[str] = Counter()
        for share in shares:
            placed[share.role] += share.workers
        if wanted and placed == wanted and all(share.node in cluster.node_of for share in shares):
            found[t] = shares
    return found


def take_room(
    task: Task, shares: Sequence[CpuShare], cores: dict[str, float], host_mib: dict[str, float]
) -> None:
    """Add the cores and host memory (MiB) that shares take of their nodes."""
    roles = {role.id: role for role in task.roles}
    for share in shares:
        role = roles[share.role]
        part = share.workers / role.cpu_workers
        cores[share.node] = cores.get(share.node, 0.0) + role.cpu_cores * part
        host_mib[share.node] = host_mib.get(share.node, 0.0) + role.host_memory_mib * part

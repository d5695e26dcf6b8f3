"""The column a running task is in now, priced with today's figures."""

from __future__ import annotations

from dataclasses import replace

from libra_plan.models.topology import GpuId
from libra_plan.planner.columns import columns_of
from libra_plan.planner.plan import Column
from libra_plan.planner.problem import HeldTask, Problem, Task

__all__ = ["held_column"]


def held_column(problem: Problem, task: Task, held: HeldTask) -> Column | None:
    """Find the column that describes what a task holds; None when it cannot stay as it is.

    It cannot when a GPU is gone or excluded, a role changed, or its option is refused today.
    """
    gpus = {role.role: {gpu for replica in role.replicas for gpu in replica} for role in held.roles}
    everything = set().union(*gpus.values()) if gpus else set()
    roles = {role.id: role for role in task.gpu_roles}
    if set(gpus) != set(roles) or not everything <= set(problem.cluster.gpus):
        return None
    for name, taken in gpus.items():
        role = roles[name]
        if taken & role.excluded_gpus or (role.pinned_gpus and taken != role.pinned_gpus):
            return None
    now = {role.role: (role.layout, len(role.replicas)) for role in held.roles}
    only_now = replace(
        task,
        roles=tuple(
            replace(
                role,
                options=tuple(
                    option for option in role.options if (option.layout, option.replicas) == now[role.id]
                ),
                pinned_gpus=frozenset(),
                excluded_gpus=frozenset(),
            )
            if role.on_gpu
            else role
            for role in task.roles
        ),
    )
    for column in columns_of(only_now, problem.cluster).columns:
        if column.gpus == len(everything) and _describes(column, gpus):
            return column
    return None


def _describes(column: Column, gpus: dict[str, set[GpuId]]) -> bool:
    """Tell whether roles share GPUs in the column exactly as far as they do now."""
    for phase in column.phases:
        pools = [[gpus[choice.role] for choice in pool.choices] for pool in phase.pools]
        unions = [set().union(*pool) for pool in pools]
        if sum(len(union) for union in unions) != len(set().union(*unions)):
            return False
        if any(
            max(len(each) for each in pool) != len(union) for pool, union in zip(pools, unions, strict=True)
        ):
            return False
    return True

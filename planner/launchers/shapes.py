"""How many GPUs of which nodes roles take: what launchers that count GPUs need to know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, RoleEntry, TaskEntry

__all__ = ["Shape", "gpus_on", "role_gpus", "shape_of", "task_nodes", "uneven", "unpinned", "width"]


@dataclass(frozen=True)
class Shape:
    """The same number of GPUs on every node of a role."""

    nodes: tuple[str, ...]
    per_node: int

    @property
    def gpus(self) -> int:
        """Count the GPUs."""
        return len(self.nodes) * self.per_node


def shape_of(role: RoleEntry) -> Shape | None:
    """Give a role's shape; None where its nodes have unequal numbers of GPUs."""
    counts = {len(member.gpus) for member in role.members}
    if len(counts) != 1:
        return None
    return Shape(tuple(member.node for member in role.members), counts.pop())


def role_gpus(role: RoleEntry) -> frozenset[tuple[str, int]]:
    """Collect a role's GPUs as (node, index)."""
    return frozenset((member.node, gpu) for member in role.members for gpu in member.gpus)


def gpus_on(task: TaskEntry, node: str) -> tuple[int, ...]:
    """List the GPUs that a task has on a node, ascending."""
    return tuple(sorted({gpu for role in task.roles for at, gpu in role_gpus(role) if at == node}))


def task_nodes(manifest: Manifest, task: TaskEntry) -> tuple[NodeEntry, ...]:
    """List the nodes where a task has GPUs, in the order of the inventory."""
    used = {node for role in task.roles for node, _ in role_gpus(role)}
    return tuple(node for node in manifest.spec.nodes if node.id in used)


def width(role: RoleEntry) -> int:
    """Count the GPUs of one replica (tp·pp·cp)."""
    return 1 if role.layout is None else role.layout.tp * role.layout.pp * role.layout.cp


def unpinned(manifest: Manifest, task: TaskEntry) -> Iterator[str]:
    """Say why it matters which of the task's GPUs a role gets, and so why counts are not enough.

    Counting launchers see just the task's GPUs and choose among them. That is the plan up to a
    renaming of equal GPUs if all are of one class and either lie on one node, or every role takes
    all the task's GPUs of its nodes and the nodes have equally many.
    """
    nodes = task_nodes(manifest, task)
    taken = {node.id: set(gpus_on(task, node.id)) for node in nodes}
    classes = {gpu.gpu_class for node in nodes for gpu in node.gpus if gpu.index in taken[node.id]}
    if len(classes) > 1:
        yield f"{task.id} has GPUs of several classes ({', '.join(sorted(classes))})"
    if len(nodes) < 2:
        return
    if len({len(gpus) for gpus in taken.values()}) > 1:
        counts = ", ".join(f"{len(gpus)} on {node}" for node, gpus in taken.items())
        yield f"{task.id} has unequal numbers of GPUs on its nodes ({counts})"
        return
    for role in task.roles:
        for member in role.members:
            if set(member.gpus) != taken[member.node]:
                yield (
                    f"{task.id}/{role.id} takes {len(member.gpus)} of the task's "
                    f"{len(taken[member.node])} GPUs on {member.node}, and the task has several nodes"
                )


def uneven(where: str, size: int, name: str, role: RoleEntry) -> Iterator[str]:
    """Say where engines of `size` GPUs do not fill the nodes of a role evenly."""
    shape = shape_of(role)
    if shape is None or size < 1:
        return
    if shape.gpus % size:
        yield f"{where}: {shape.gpus} GPUs do not divide by {name} {size}"
    elif shape.per_node % size and size % shape.per_node:
        yield f"{where}: {name} {size} would straddle nodes of {shape.per_node} GPUs unevenly"

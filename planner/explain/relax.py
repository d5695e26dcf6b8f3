"""Relaxations: changes of limits, their description, and the problem with them applied.

`task-max`, `task-min`  GPUs of the task        `role-max`, `role-min`  GPUs of one role
`pin`                   the pin is dropped      `exclusion`             GPUs that are no longer excluded
`memory`                MiB of each GPU         `gpus`                  blocks of GPUs added to the cluster
`node-size`             GPUs of every node      `cpu-cores`, `host-memory`  of every node, MiB
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.problem import Problem, Role, Task

__all__ = ["Relaxation", "relaxed"]

ADDED = "added"
"""The names of added nodes, and of the NVLink domain they form, begin with this."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One limit that changes from `now` to `needed`, which is `amount` of it (0.5: half as much again).

    `subject` is a role, a GPU class or empty (the task or every node). For `gpus`, `needed` counts
    added blocks of `block_gpus`. `allowed` are the GPUs an exclusion gives back.
    """

    code: str
    task: str
    subject: str
    now: float | None
    needed: float
    amount: float
    block_gpus: int = 0
    allowed: tuple[GpuId, ...] = ()

    @property
    def text(self) -> str:
        """What to change, as an instruction."""
        return _WORDS[self.code](self)


def _change(name: str, unit: str = "") -> Callable[[Relaxation], str]:
    def words(of: Relaxation) -> str:
        verb = "lower" if of.code.endswith("-min") else "raise"
        owner = f"role {of.subject} of {of.task}" if of.subject else of.task
        return f"{verb} {name} of {owner} from {_number(of.now)} to {_number(of.needed)}{unit}"

    return words


def _on_nodes(name: str, unit: str) -> Callable[[Relaxation], str]:
    def words(of: Relaxation) -> str:
        now = "of none that are stated" if of.now is None else f"of {_number(of.now)}"
        return f"give every node {_number(of.needed)} {unit} of {name} instead {now}"

    return words


def _added(of: Relaxation) -> str:
    blocks = "block" if of.needed == 1 else "blocks"
    return f"add {of.needed:g} {blocks} of {of.block_gpus} free GPUs of class {of.subject}"


def _given_back(of: Relaxation) -> str:
    names = ", ".join(map(str, of.allowed))
    return f"let role {of.subject} of {of.task} use {names}, which it excludes"


_WORDS: dict[str, Callable[[Relaxation], str]] = {
    "task-max": _change("max_gpus"),
    "task-min": _change("min_gpus"),
    "role-max": _change("max_gpus"),
    "role-min": _change("min_gpus"),
    "pin": lambda of: f"drop the pin of role {of.subject} of {of.task} to {_number(of.now)} GPUs",
    "exclusion": _given_back,
    "memory": lambda of: (
        f"use {of.subject} GPUs with {_number(of.needed)} MiB instead of {_number(of.now)}, "
        "or a smaller batch or larger replicas"
    ),
    "gpus": _added,
    "node-size": lambda of: (
        f"use nodes of {_number(of.needed)} {of.subject} GPUs instead of {_number(of.now)}"
    ),
    "cpu-cores": _on_nodes("CPU", "cores"),
    "host-memory": _on_nodes("host memory", "MiB"),
}


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def relaxed(problem: Problem, relaxations: Sequence[Relaxation]) -> Problem:
    """Return the problem with all these limits changed."""
    for each in relaxations:
        if each.code in _ON_TASK:
            tasks = tuple(_task(task, each) if task.id == each.task else task for task in problem.tasks)
            problem = replace(problem, tasks=tasks)
        else:
            problem = replace(problem, cluster=_ON_CLUSTER[each.code](problem.cluster, each))
    return problem


_ON_TASK = frozenset({"task-max", "task-min", "role-max", "role-min", "pin", "exclusion"})


def _task(task: Task, each: Relaxation) -> Task:
    if each.code == "task-max":
        return replace(task, max_gpus=int(each.needed))
    if each.code == "task-min":
        return replace(task, min_gpus=int(each.needed))
    roles = tuple(_role(role, each) if role.id == each.subject else role for role in task.roles)
    return replace(task, roles=roles)


def _role(role: Role, each: Relaxation) -> Role:
    if each.code == "role-max":
        return replace(role, max_gpus=int(each.needed))
    if each.code == "role-min":
        return replace(role, min_gpus=int(each.needed))
    if each.code == "pin":
        return replace(role, pinned_gpus=frozenset())
    return replace(role, excluded_gpus=role.excluded_gpus - set(each.allowed))


def _more_memory(cluster: Cluster, each: Relaxation) -> Cluster:
    def larger(gpu: Gpu) -> Gpu:
        of_class = gpu.gpu_class == each.subject
        return replace(gpu, memory_mib=max(gpu.memory_mib, each.needed)) if of_class else gpu

    return _nodes(cluster, lambda node: replace(node, gpus=tuple(map(larger, node.gpus))))


def _nodes(cluster: Cluster, change: Callable[[Node], Node]) -> Cluster:
    return replace(cluster, nodes=tuple(map(change, cluster.nodes)))


def _more_cores(cluster: Cluster, each: Relaxation) -> Cluster:
    more = each.needed - (each.now or 0.0)
    return _nodes(cluster, lambda node: replace(node, cpu_cores=(node.cpu_cores or 0.0) + more))


def _more_host_memory(cluster: Cluster, each: Relaxation) -> Cluster:
    more = each.needed - (each.now or 0.0)
    return _nodes(cluster, lambda node: replace(node, host_memory_mib=(node.host_memory_mib or 0.0) + more))


def _more_gpus(cluster: Cluster, each: Relaxation) -> Cluster:
    """Add blocks on nodes of their own, with the cores and host memory per GPU of a known node."""
    known = max(
        (node for node in cluster if any(gpu.gpu_class == each.subject for gpu in node.gpus)),
        key=lambda node: len(node.gpus),
    )
    full = cluster.full_node_gpus[each.subject]
    sizes = [each.block_gpus] if each.block_gpus <= full else [full] * (each.block_gpus // full)
    domains = any(node.nvlink_domain for node in cluster)
    added = []
    for number in range(int(each.needed)):
        for at, size in enumerate(sizes):
            name = f"{ADDED}-{each.subject}-{each.block_gpus}-{number}-{at}"
            memory_mib = cluster.memory_mib(each.subject)
            gpus = tuple(Gpu(GpuId(name, index), each.subject, memory_mib) for index in range(size))
            part = size / len(known.gpus)
            added.append(
                Node(
                    name,
                    gpus,
                    cpu_cores=None if known.cpu_cores is None else known.cpu_cores * part,
                    host_memory_mib=None if known.host_memory_mib is None else known.host_memory_mib * part,
                    nvlink_domain=f"{ADDED}-{number}" if domains else None,
                )
            )
    return replace(cluster, nodes=(*cluster.nodes, *added))


def _larger_nodes(cluster: Cluster, each: Relaxation) -> Cluster:
    """Grow every full node of the class to so many GPUs, with cores and host memory in proportion."""
    full, size = cluster.full_node_gpus[each.subject], int(each.needed)

    def grown(node: Node) -> Node:
        mine = [gpu for gpu in node.gpus if gpu.gpu_class == each.subject]
        if len(mine) != full:
            return node
        first = max(gpu.id.index for gpu in node.gpus) + 1
        more = [replace(mine[0], id=GpuId(node.id, first + at), uuid=None) for at in range(size - full)]
        part = (len(node.gpus) + len(more)) / len(node.gpus)
        return replace(
            node,
            gpus=(*node.gpus, *more),
            cpu_cores=None if node.cpu_cores is None else node.cpu_cores * part,
            host_memory_mib=None if node.host_memory_mib is None else node.host_memory_mib * part,
        )

    return _nodes(cluster, grown)


_ON_CLUSTER: dict[str, Callable[[Cluster, Relaxation], Cluster]] = {
    "memory": _more_memory,
    "cpu-cores": _more_cores,
    "host-memory": _more_host_memory,
    "gpus": _more_gpus,
    "node-size": _larger_nodes,
}

"""Candidates that no cluster state could place: their GPUs need more CPU or host memory than nodes have.

A block needs cores and memory on its own node, so a cluster with enough of them in all may still have
no node for it. Counting, for every kind of block alone, how many the nodes hold is cheap, and saves
the search from trying these candidates one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from libra_plan.models.topology import Cluster, Node
from libra_plan.planner.configurations.needs import BlockNeed, block_needs
from libra_plan.planner.optimize.assignment import gpus_of_class
from libra_plan.planner.optimize.constraints import Row
from libra_plan.planner.optimize.objective import TaskCandidates
from libra_plan.planner.problem import Role

__all__ = ["NO_ROOM", "no_room_row"]

NO_ROOM = "no-host-room"
_TRUE_TO = 1e-9  # relative, of quotients of cores and MiB


def no_room_row(tasks: Sequence[TaskCandidates], cluster: Cluster) -> Row | None:
    """Forbid every candidate with a block, or a worker, that too few nodes have room for."""
    known: dict[BlockNeed, int] = {}

    def fits(need: BlockNeed) -> bool:
        kind = BlockNeed(
            need.gpu_class, need.block_gpus, 1, need.cpu_cores_per_gpu, need.host_memory_mib_per_gpu, None
        )
        if kind not in known:
            known[kind] = _rooms(cluster, kind)
        return need.blocks <= known[kind]

    forbidden = {}
    for t, each in enumerate(tasks):
        homeless = any(
            _workers(cluster, role) < role.cpu_workers for role in each.task.roles if not role.on_gpu
        )
        for c, entry in enumerate(each.candidates):
            if homeless or (entry.held is None and not all(map(fits, block_needs(entry.configuration)))):
                forbidden[t, c] = 1.0
    return Row(NO_ROOM, forbidden, 0.0) if forbidden else None


def _rooms(cluster: Cluster, need: BlockNeed) -> int:
    """Count the blocks of one kind that the empty nodes hold."""
    full = cluster.full_node_gpus[need.gpu_class]
    part = min(need.block_gpus, full)
    parts = sum(
        min(
            gpus_of_class(node, need.gpu_class) // part,
            _times(node, need.cpu_cores_per_gpu * part, need.host_memory_mib_per_gpu * part),
        )
        for node in cluster
    )
    return parts // (need.block_gpus // part)


def _workers(cluster: Cluster, role: Role) -> int:
    """Count the workers of a CPU-only role that the empty nodes hold."""
    each = role.cpu_cores / role.cpu_workers, role.host_memory_mib / role.cpu_workers
    return sum(min(role.cpu_workers, _times(node, *each)) for node in cluster)


def _times(node: Node, cores: float, host_mib: float) -> int:
    """Count how often a node has so many cores and so much memory."""
    most = math.inf
    for has, needs in ((node.cpu_cores or 0.0, cores), (node.host_memory_mib or 0.0, host_mib)):
        if needs > 0.0:
            most = min(most, math.floor(has / needs * (1 + _TRUE_TO) + _TRUE_TO))
    return 2**31 if most == math.inf else int(most)

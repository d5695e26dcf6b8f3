"""Split the blocks of a task's pools into the replicas of its roles, in rank order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.configurations.packing import spots
from libra_plan.planner.plan import Configuration, Phase, PlacedRole, Pool, RoleChoice
from libra_plan.planner.problem import Task

__all__ = ["Block", "placed_roles"]

Block = tuple[GpuId, ...]


def placed_roles(
    cluster: Cluster, task: Task, configuration: Configuration, blocks: Mapping[int | None, list[Block]]
) -> tuple[PlacedRole, ...]:
    """Split each pool's blocks into replicas; ranks follow the order of nodes, then GPUs."""
    placed: dict[str, PlacedRole] = {}
    roles = {role.id: role for role in task.roles}
    for phase in configuration.phases:
        shared = _pools_of_phase(cluster, phase, blocks[None]) if len(configuration.phases) > 1 else []
        for number, pool in enumerate(phase.pools):
            mine = shared[number] if shared else blocks[number]
            for choice in pool.choices:
                pinned = roles[choice.role].pinned_gpus
                placed[choice.role] = PlacedRole(
                    choice.role, choice, _replicas(cluster, choice, pool, mine, pinned)
                )
    return tuple(placed[role.id] for role in task.gpu_roles)


def _pools_of_phase(cluster: Cluster, phase: Phase, outer: Sequence[Block]) -> list[list[Block]]:
    """Assign each pool of a phase blocks within the configuration's larger ones, none cut by a node."""
    pools = phase.pools
    full = cluster.full_node_gpus[pools[0].gpu_class]
    wanted = [(pool.block_gpus, at) for at, pool in enumerate(pools) for _ in range(pool.blocks)]
    wanted.sort(key=lambda each: -each[0])
    mine: list[list[Block]] = [[] for _ in pools]
    carved = _carved(outer, [gpus for gpus, _ in wanted], full)
    for (_, at), block in zip(wanted, carved, strict=True):
        mine[at].append(block)
    return mine


def _carved(outer: Sequence[Block], sizes: Sequence[int], full: int) -> list[Block]:
    """Cut blocks, largest first, out of larger ones of GPUs node by node, none cut by a node."""
    size = len(outer[0])
    node = min(size, full)
    left = [[list(block[at : at + node]) for at in range(0, size, node)] for block in outer]
    found: list[Block] = []
    for gpus, (number, nodes) in zip(sizes, spots(sizes, size, full, len(outer)), strict=True):
        parts = [left[number][each] for each in nodes]
        each_takes = gpus // len(parts)
        found.append(tuple(gpu for part in parts for gpu in part[:each_takes]))
        for part in parts:
            del part[:each_takes]
    return found


def _replicas(
    cluster: Cluster,
    choice: RoleChoice,
    pool: Pool,
    blocks: Sequence[Block],
    pinned: frozenset[GpuId],
) -> tuple[Block, ...]:
    if choice.option.mix:
        return _mixed(cluster, choice, pool, blocks)
    size = choice.layout.gpus_per_replica
    order = cluster.order_of
    full = cluster.full_node_gpus[pool.gpu_class]
    if pinned:
        spans = cluster.span_of
        blocks = [tuple(sorted(pinned, key=lambda gpu: (spans[gpu.node], order[gpu.node], gpu.index)))]
    found: list[Block] = []
    for block in blocks:
        # a replica larger than a node is made of whole ones, a smaller one stays inside its node
        for part in _by_node(block) if size <= full else [block]:
            found += [part[at * size : (at + 1) * size] for at in range(len(part) // size)]
    found.sort(key=lambda replica: (order[replica[0].node], replica[0].index))
    return tuple(found[: choice.option.replicas])


def _mixed(cluster: Cluster, choice: RoleChoice, pool: Pool, blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Carve replicas of several sizes out of a pool's blocks, largest first, in the order of the mix."""
    layouts = choice.option.layouts
    largest_first = sorted(range(len(layouts)), key=lambda at: -layouts[at].gpus_per_replica)
    full = cluster.full_node_gpus[pool.gpu_class]
    carved = _carved(blocks, [layouts[at].gpus_per_replica for at in largest_first], full)
    of = dict(zip(largest_first, carved, strict=True))
    return tuple(of[at] for at in range(len(layouts)))


def _by_node(block: Block) -> list[Block]:
    nodes: dict[str, list[GpuId]] = {}
    for gpu in block:
        nodes.setdefault(gpu.node, []).append(gpu)
    return [tuple(gpus) for gpus in nodes.values()]

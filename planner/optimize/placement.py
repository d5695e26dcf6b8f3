"""From chosen candidates to GPU ids: kept tasks stay, the others get nodes, then GPUs, then ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.configurations.needs import block_needs
from libra_plan.planner.optimize.assignment import CpuNeed, Item, NodeAssignment, UndecidedError
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.constraints import Choice
from libra_plan.planner.optimize.cpsat_placement import assign_nodes
from libra_plan.planner.optimize.first_fit import first_fit, splits_racks
from libra_plan.planner.optimize.objective import Candidate, TaskCandidates, host_of_held
from libra_plan.planner.optimize.replicas import Block, placed_roles
from libra_plan.planner.plan import Configuration, CpuShare, PlacedRole, RoleChoice
from libra_plan.planner.problem import IncumbentRole, IncumbentTask, Problem, Role, Task

__all__ = ["TaskPlacement", "in_the_way", "place"]


_Asked = tuple[
    Cluster,
    list[Item],
    list[CpuNeed],
    dict[str, list[GpuId]],
    dict[str, float],
    dict[str, float],
]  # what goes where: blocks, workers, free GPUs, and cores and MiB of hosts that are taken

_TRUE_TO = 1e-9  # relative, of sums of cores and MiB
_MOST_IMPROVED = 50_000  # items × nodes; beyond, CP-SAT's model takes longer to build than it can gain


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """Where one task's roles run."""

    roles: tuple[PlacedRole, ...]
    cpu: tuple[CpuShare, ...]


def place(
    problem: Problem,
    tasks: Sequence[TaskCandidates],
    choice: Choice,
    params: SolveParams,
    *,
    limit_s: float,
) -> dict[int, TaskPlacement] | None:
    """Place a choice on GPUs; None when its blocks, cores or host memory cannot be packed.

    Raises UndecidedError when the limit has passed before that is known.
    """
    chosen = {t: tasks[t].candidates[c] for t, c in choice.items()}
    held = {t: entry.held for t, entry in chosen.items() if entry.held is not None}
    staying = _kept_workers(problem.cluster, tasks, held)
    if staying:
        with suppress(UndecidedError):
            placed = _placed(problem, tasks, chosen, held, staying, params, limit_s)
            if placed is not None:
                return placed
    return _placed(problem, tasks, chosen, held, {}, params, limit_s)


def _placed(
    problem: Problem,
    tasks: Sequence[TaskCandidates],
    chosen: Mapping[int, Candidate],
    held: Mapping[int, IncumbentTask],
    staying: Mapping[int, tuple[CpuShare, ...]],
    params: SolveParams,
    limit_s: float,
) -> dict[int, TaskPlacement] | None:
    kept_gpus = [gpu for each in held.values() for gpu in _gpus_of(each)]
    if len(kept_gpus) != len(set(kept_gpus)):
        return None
    free = _free(problem.cluster, set(kept_gpus))
    owners, items = _items(problem, tasks, {t: entry for t, entry in chosen.items() if t not in held})
    cpu_needs = [need for t in chosen if t not in staying for need in _cpu_needs(tasks[t].task)]
    cores, host = _used_by_held(chosen, held)
    for t, kept in staying.items():
        _take_room(tasks[t].task, kept, cores, host)
    if _overfull(problem.cluster, cores, host):
        return None  # a node has less capacity than when the kept tasks were placed there
    assigned = _assigned((problem.cluster, items, cpu_needs, free, cores, host), params, limit_s)
    if assigned is None:
        return None
    blocks = _blocks_by_item(problem.cluster, items, assigned, free)
    order = problem.cluster.order_of
    shares_of: dict[str, list[CpuShare]] = {}
    for number, node in sorted(assigned.workers, key=lambda at: (at[0], order[at[1]])):
        need = cpu_needs[number]
        share = CpuShare(need.role, node, assigned.workers[number, node])
        shares_of.setdefault(need.task, []).append(share)
    items_of: dict[int, list[int]] = {}
    for number, owner in enumerate(owners):
        items_of.setdefault(owner, []).append(number)
    placements: dict[int, TaskPlacement] = {}
    for t, entry in chosen.items():
        shares = staying.get(t) or tuple(shares_of.get(tasks[t].task.id, ()))
        if t in held:
            roles = _held_roles(entry.configuration, held[t])
        else:
            mine = {items[n].pool: blocks[n] for n in items_of.get(t, ())}
            roles = placed_roles(problem.cluster, tasks[t].task, entry.configuration, mine)
        placements[t] = TaskPlacement(roles, shares)
    return placements


def in_the_way(
    problem: Problem, tasks: Sequence[TaskCandidates], choice: Choice, costs: Mapping[int, float]
) -> list[int]:
    """Name the kept tasks that cost least to move and leave room for the first block that finds none.

    `costs` says what it costs to move each task that may be moved. Empty where that is not what is lacking.
    """
    chosen = {t: tasks[t].candidates[c] for t, c in choice.items()}
    held = {t: entry.held for t, entry in chosen.items() if entry.held is not None}
    cluster = problem.cluster
    free = _free(cluster, {gpu for each in held.values() for gpu in _gpus_of(each)})
    _, items = _items(problem, tasks, {t: entry for t, entry in chosen.items() if t not in held})
    cores, host = _used_by_held(chosen, held)
    stuck: list[tuple[Item, NDArray[np.int64]]] = []
    first_fit(cluster, items, [], free, cores, host, stuck)
    if not stuck:
        return []
    item, left = stuck[0]
    wanted = min(item.block_gpus, cluster.full_node_gpus[item.gpu_class])
    on_node: dict[str, Counter[int]] = {}
    for t in costs.keys() & held.keys():
        for gpu in _gpus_of(held[t]):
            if cluster.gpus[gpu].gpu_class == item.gpu_class:
                on_node.setdefault(gpu.node, Counter())[t] += 1
    ways: list[tuple[float, list[int]]] = []
    for name, gpus in on_node.items():
        room, moved = int(left[cluster.order_of[name]]), []
        for t in sorted(gpus, key=lambda t: (costs[t] / gpus[t], t)):
            if room < wanted:
                room += gpus[t]
                moved.append(t)
        if room >= wanted and moved:
            ways.append((sum(costs[t] for t in moved), moved))
    return min(ways, default=(0.0, []))[1]


def _assigned(asked: _Asked, params: SolveParams, limit_s: float) -> NodeAssignment | None:
    """Assign blocks and workers to nodes; None when that is impossible."""
    cluster, items, *_ = asked
    assigned = first_fit(*asked)
    if (
        assigned is not None
        and not any(item.liked for item in items)
        and not splits_racks(cluster, items, assigned)
    ):
        return assigned
    # Best fit failed, which proves nothing; or fewer moves or fewer racks may be possible.
    if assigned is None and limit_s <= 0.0:
        raise UndecidedError
    if limit_s > 0.0 and (assigned is None or len(items) * len(cluster.nodes) <= _MOST_IMPROVED):
        return assign_nodes(*asked, params, limit_s=limit_s, start=assigned)
    return assigned


def _gpus_of(held: IncumbentTask) -> set[GpuId]:
    return {gpu for role in held.roles for replica in role.replicas for gpu in replica}


def _free(cluster: Cluster, taken: set[GpuId]) -> dict[str, list[GpuId]]:
    return {node.id: [gpu.id for gpu in node.gpus if gpu.id not in taken] for node in cluster}


def _items(
    problem: Problem, tasks: Sequence[TaskCandidates], chosen: Mapping[int, Candidate]
) -> tuple[list[int], list[Item]]:
    """List the blocks to be placed, and for each the number of its task."""
    held_gpus = {held.task: frozenset(_gpus_of(held)) for held in problem.running}
    owners: list[int] = []
    items: list[Item] = []
    for t, entry in chosen.items():
        task = tasks[t].task
        members = [tasks[member].task for member in tasks[t].members] or [task]
        liked = frozenset().union(*(held_gpus.get(each.id, frozenset()) for each in members))
        for need in block_needs(entry.configuration):
            roles = [] if need.pool is None else _members(task, entry.configuration, need.pool)
            owners.append(t)
            items.append(
                Item(
                    task.id,
                    need.pool,
                    need.gpu_class,
                    need.block_gpus,
                    need.blocks,
                    need.cpu_cores_per_gpu,
                    need.host_memory_mib_per_gpu,
                    frozenset().union(*(role.pinned_gpus for role in roles)),
                    frozenset().union(*(role.excluded_gpus for role in roles)),
                    liked,
                )
            )
    return owners, items


def _members(task: Task, configuration: Configuration, pool: int) -> list[Role]:
    names = {choice.role for choice in configuration.phases[0].pools[pool].choices}
    return [role for role in task.roles if role.id in names]


def _cpu_needs(task: Task) -> list[CpuNeed]:
    return [
        CpuNeed(
            task.id,
            role.id,
            role.cpu_workers,
            role.cpu_cores / role.cpu_workers,
            role.host_memory_mib / role.cpu_workers,
        )
        for role in task.roles
        if not role.on_gpu
    ]


def _used_by_held(
    chosen: Mapping[int, Candidate], held: Mapping[int, IncumbentTask]
) -> tuple[dict[str, float], dict[str, float]]:
    """Sum what kept tasks take of each node's cores and host memory: their GPUs' largest need."""
    cores: dict[str, float] = {}
    host: dict[str, float] = {}
    for t, now in held.items():
        for gpu, (gpu_cores, gpu_host_mib) in host_of_held(chosen[t].configuration, now).items():
            cores[gpu.node] = cores.get(gpu.node, 0.0) + gpu_cores
            host[gpu.node] = host.get(gpu.node, 0.0) + gpu_host_mib
    return cores, host


def _kept_workers(
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


def _take_room(
    task: Task, shares: Sequence[CpuShare], cores: dict[str, float], host_mib: dict[str, float]
) -> None:
    """Add the cores and host memory (MiB) that shares take of their nodes."""
    roles = {role.id: role for role in task.roles}
    for share in shares:
        role = roles[share.role]
        part = share.workers / role.cpu_workers
        cores[share.node] = cores.get(share.node, 0.0) + role.cpu_cores * part
        host_mib[share.node] = host_mib.get(share.node, 0.0) + role.host_memory_mib * part


def _overfull(cluster: Cluster, cores: Mapping[str, float], host_mib: Mapping[str, float]) -> bool:
    return any(
        cores.get(node.id, 0.0) > (node.cpu_cores or 0.0) * (1 + _TRUE_TO)
        or host_mib.get(node.id, 0.0) > (node.host_memory_mib or 0.0) * (1 + _TRUE_TO)
        for node in cluster
    )


def _blocks_by_item(
    cluster: Cluster, items: Sequence[Item], assigned: NodeAssignment, free: Mapping[str, list[GpuId]]
) -> list[list[Block]]:
    """Assign GPU ids: first to items placed by id, then large blocks before small ones.

    A task gets GPUs it holds now before others, and aligned neighbours before scattered ones.
    """
    left = {node: list(gpus) for node, gpus in free.items()}
    result: list[list[Block]] = [[] for _ in items]
    for number, gpus in assigned.gpus.items():
        for node in cluster:
            here = [gpu for gpu in left[node.id] if gpu in gpus]
            size = items[number].block_gpus
            result[number] += [tuple(here[at : at + size]) for at in range(0, len(here) - size + 1, size)]
            left[node.id] = [gpu for gpu in left[node.id] if gpu not in gpus]
    nodes_of: dict[int, list[str]] = {}
    for number, name in assigned.blocks:
        nodes_of.setdefault(number, []).append(name)
    order = sorted(range(len(items)), key=lambda n: (-items[n].block_gpus, n))
    for number in order:
        item = items[number]
        if number in assigned.gpus:
            continue
        whole = assigned.whole_nodes.get(number, ())
        nodes = _by_span(cluster, whole) if whole else []
        per_block = max(1, len(nodes) // item.blocks)
        for at in range(0, len(nodes), per_block):
            group = nodes[at : at + per_block]
            result[number].append(
                tuple(gpu for node in group for gpu in left[node] if _is(cluster, gpu, item))
            )
            for name in group:
                left[name] = [gpu for gpu in left[name] if not _is(cluster, gpu, item)]
        for name in sorted(nodes_of.get(number, ()), key=cluster.order_of.__getitem__):
            found = _take(cluster, left[name], item, assigned.blocks[number, name])
            result[number] += found
            taken = {gpu for block in found for gpu in block}
            left[name] = [gpu for gpu in left[name] if gpu not in taken]
    return result


def _by_span(cluster: Cluster, nodes: Sequence[str]) -> list[str]:
    """Sort whole nodes so that those a block is made of are in one NVLink domain, and near each other."""
    spans = {span: number for number, span in enumerate(dict.fromkeys(cluster.span_of.values()))}
    racks = [None, *cluster.racks]

    def place(node: str) -> tuple[int, int]:
        return spans[cluster.span_of[node]], racks.index(cluster.node_of[node].rack)

    return sorted(nodes, key=place)


def _is(cluster: Cluster, gpu: GpuId, item: Item) -> bool:
    return cluster.gpus[gpu].gpu_class == item.gpu_class


def _take(cluster: Cluster, left: Sequence[GpuId], item: Item, blocks: int) -> list[Block]:
    """Take blocks of a node: aligned ones with most of the held GPUs first, then scattered ones."""
    usable = [gpu for gpu in left if _is(cluster, gpu, item)]
    size = item.block_gpus
    groups: dict[int, list[GpuId]] = {}
    for gpu in usable:
        groups.setdefault(gpu.index // size, []).append(gpu)
    aligned = [tuple(group) for group in groups.values() if len(group) == size]
    aligned.sort(key=lambda group: -sum(gpu in item.liked for gpu in group))
    found = aligned[:blocks]
    taken = {gpu for block in found for gpu in block}
    rest = [gpu for gpu in usable if gpu not in taken]
    rest.sort(key=lambda gpu: (gpu not in item.liked, gpu.index))
    scattered = range(0, size * (blocks - len(found)), size)
    return found + [tuple(sorted(rest[at : at + size])) for at in scattered]


def _held_roles(configuration: Configuration, held: IncumbentTask) -> tuple[PlacedRole, ...]:
    choices = {
        choice.role: choice
        for phase in configuration.phases
        for pool in phase.pools
        for choice in pool.choices
    }
    return tuple(
        PlacedRole(role.role, choices[role.role], _as_mixed(choices[role.role], role)) for role in held.roles
    )


def _as_mixed(choice: RoleChoice, held: IncumbentRole) -> tuple[Block, ...]:
    """Order the replicas a task keeps as its option's `mix` does."""
    left = list(zip(held.mix, held.replicas, strict=True)) if held.mix else []
    found: list[Block] = []
    for each in choice.option.mix:
        at = next(number for number, (layout, _) in enumerate(left) if layout == each.layout)
        found.append(left.pop(at)[1])
    return tuple(found) if held.mix else held.replicas

"""Assign each block to a node by CP-SAT: GPUs, CPU cores, host memory, pins and exclusions.

Blocks of equal need are counted per node, not placed one by one. Only pools with pinned or
excluded GPUs get a variable per GPU; everywhere else the GPUs of a node are alike and are handed
out afterwards (`placement.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libra_plan.models.topology import Cluster, GpuId, Node
from libra_plan.planner.optimize.assignment import (
    CpuNeed,
    Item,
    NodeAssignment,
    UndecidedError,
    gpus_of_class,
)
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.cpsat import cp_model, run_cpsat

__all__ = ["assign_nodes"]

_UNITS = 1000  # cores are counted in thousandths
_MOST_PARTS = 5040
_IMPROVE_S = 0.2  # deterministic seconds to improve a placement that is already valid


@dataclass(slots=True)
class _Variables:
    blocks: dict[tuple[int, str], cp_model.IntVar]
    whole: dict[tuple[int, str], cp_model.IntVar]
    gpus: dict[tuple[int, GpuId], cp_model.IntVar]
    workers: dict[tuple[int, str], cp_model.IntVar]


def assign_nodes(
    cluster: Cluster,
    items: Sequence[Item],
    cpu_needs: Sequence[CpuNeed],
    free: Mapping[str, Sequence[GpuId]],
    used_cores: Mapping[str, float],
    used_host_mib: Mapping[str, float],
    params: SolveParams,
    *,
    limit_s: float,
    start: NodeAssignment | None = None,
) -> NodeAssignment | None:
    """Place every item and worker on nodes, on GPUs the tasks hold where possible; None if it cannot be.

    `free` lists the free GPUs of every node; `used_*` is what kept tasks already take there. With
    `start`, a placement to improve on, a fraction of a second is spent and `start` stays the answer
    when nothing better turns up. Without, an UndecidedError says that the limit has passed.
    """
    model = cp_model.CpModel()
    variables = _Variables({}, {}, {}, {})
    for number, item in enumerate(items):
        _add_item(model, variables, number, item, cluster, free)
    for number, need in enumerate(cpu_needs):
        for node in cluster:
            variables.workers[number, node.id] = model.new_int_var(0, need.workers, f"e_{number}_{node.id}")
        model.add(sum(variables.workers[number, node.id] for node in cluster) == need.workers)
    for node in cluster:
        _add_gpu_room(model, variables, items, node, free)
        _add_host_room(model, variables, items, cpu_needs, node, used_cores, used_host_mib)
    if start is not None:
        model.minimize(_cost(model, variables, items, cluster))
        _hint(model, variables, start)
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = params.seed
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = limit_s if start is None else min(limit_s, _IMPROVE_S)
    if not params.deterministic:
        solver.parameters.max_time_in_seconds = limit_s
    status = run_cpsat(solver, model, params)
    if status == cp_model.UNKNOWN and start is None:
        raise UndecidedError
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return start
    return _read(solver, variables, items)


def _add_item(
    model: cp_model.CpModel,
    variables: _Variables,
    number: int,
    item: Item,
    cluster: Cluster,
    free: Mapping[str, Sequence[GpuId]],
) -> None:
    """Count the item's blocks over nodes, or its whole nodes when a block is larger than a node."""
    full = cluster.full_node_gpus[item.gpu_class]
    if item.block_gpus > full:
        _add_whole_nodes(model, variables, number, item, cluster, free, full)
        return
    terms = []
    for node in cluster:
        usable = _free_of_class(cluster, free[node.id], item)
        most = min(item.blocks, len(usable) // item.block_gpus)
        count = model.new_int_var(0, most, f"y_{number}_{node.id}")
        variables.blocks[number, node.id] = count
        terms.append(count)
        if item.by_id:
            taken = []
            for gpu in usable:
                if gpu in item.excluded:
                    continue
                variables.gpus[number, gpu] = model.new_bool_var(f"a_{number}_{gpu}")
                taken.append(variables.gpus[number, gpu])
            model.add(sum(taken) == item.block_gpus * count)
    model.add(sum(terms) == item.blocks)
    for gpu in sorted(item.pinned):
        if (number, gpu) in variables.gpus:
            model.add(variables.gpus[number, gpu] == 1)
        else:
            model.add_bool_or([])  # a pinned GPU that is not free: nothing can be placed


def _add_whole_nodes(
    model: cp_model.CpModel,
    variables: _Variables,
    number: int,
    item: Item,
    cluster: Cluster,
    free: Mapping[str, Sequence[GpuId]],
    full: int,
) -> None:
    """Assign wholly free nodes to an item whose blocks are larger than a node."""
    spans: dict[str, list[cp_model.IntVar]] = {}
    for node in cluster:
        usable = [gpu for gpu in _free_of_class(cluster, free[node.id], item) if gpu not in item.excluded]
        if len(usable) == full:
            variables.whole[number, node.id] = model.new_bool_var(f"w_{number}_{node.id}")
            spans.setdefault(cluster.span_of[node.id], []).append(variables.whole[number, node.id])
    each = item.block_gpus // full
    model.add(sum(x for terms in spans.values() for x in terms) == item.blocks * each)
    for span, terms in spans.items() if len(spans) > 1 else ():
        model.add(sum(terms) == each * model.new_int_var(0, item.blocks, f"s_{number}_{span}"))
    for name in sorted({gpu.node for gpu in item.pinned}):
        if (number, name) in variables.whole:
            model.add(variables.whole[number, name] == 1)
        else:
            model.add_bool_or([])  # a pinned GPU's node is not free as a whole


def _free_of_class(cluster: Cluster, free: Sequence[GpuId], item: Item) -> list[GpuId]:
    return [gpu for gpu in free if cluster.gpus[gpu].gpu_class == item.gpu_class]


def _add_gpu_room(
    model: cp_model.CpModel,
    variables: _Variables,
    items: Sequence[Item],
    node: Node,
    free: Mapping[str, Sequence[GpuId]],
) -> None:
    classes = {gpu.id: gpu.gpu_class for gpu in node.gpus}
    for gpu_class in dict.fromkeys(classes.values()):
        room = sum(1 for gpu in free[node.id] if classes[gpu] == gpu_class)
        taken = [
            item.block_gpus * variables.blocks[number, node.id]
            for number, item in enumerate(items)
            if item.gpu_class == gpu_class and (number, node.id) in variables.blocks
        ]
        taken += [
            gpus_of_class(node, gpu_class) * variables.whole[number, node.id]
            for number, item in enumerate(items)
            if item.gpu_class == gpu_class and (number, node.id) in variables.whole
        ]
        if taken:
            model.add(sum(taken) <= room)
    for gpu in free[node.id]:
        same = [x for (_, other), x in variables.gpus.items() if other == gpu]
        if len(same) > 1:
            model.add_at_most_one(same)


def _add_host_room(
    model: cp_model.CpModel,
    variables: _Variables,
    items: Sequence[Item],
    cpu_needs: Sequence[CpuNeed],
    node: Node,
    used_cores: Mapping[str, float],
    used_host_mib: Mapping[str, float],
) -> None:
    """Keep CPU cores and host memory of a node; needs are rounded up, room down.

    Workers get equal parts of a whole, so units are such that thirds and sevenths come out even.
    """
    parts = math.lcm(*(need.workers for need in cpu_needs if need.workers <= _MOST_PARTS))
    parts = parts if parts <= _MOST_PARTS else 1

    def add(limit: float, unit: float, per_gpu: Sequence[float], per_worker: Sequence[float]) -> None:
        terms = []
        for number, item in enumerate(items):
            if not per_gpu[number]:
                continue
            if (number, node.id) in variables.blocks:
                need = math.ceil(per_gpu[number] * item.block_gpus * unit - 1e-6)
                terms.append(need * variables.blocks[number, node.id])
            if (number, node.id) in variables.whole:
                need = math.ceil(per_gpu[number] * gpus_of_class(node, item.gpu_class) * unit - 1e-6)
                terms.append(need * variables.whole[number, node.id])
        for number, each in enumerate(per_worker):
            if each:
                terms.append(math.ceil(each * unit - 1e-6) * variables.workers[number, node.id])
        if terms:
            model.add(sum(terms) <= max(0, math.floor(limit * unit + 1e-6)))

    add(
        (node.cpu_cores or 0.0) - used_cores.get(node.id, 0.0),
        _UNITS * parts,
        [item.cpu_cores_per_gpu for item in items],
        [need.cpu_cores_per_worker for need in cpu_needs],
    )
    add(
        (node.host_memory_mib or 0.0) - used_host_mib.get(node.id, 0.0),
        float(parts),
        [item.host_memory_mib_per_gpu for item in items],
        [need.host_memory_mib_per_worker for need in cpu_needs],
    )


def _cost(
    model: cp_model.CpModel, variables: _Variables, items: Sequence[Item], cluster: Cluster
) -> cp_model.LinearExprT:
    """Prefer GPUs the task holds, then few racks and few nodes per task, then the first nodes."""
    order = cluster.order_of
    terms: list[cp_model.LinearExprT] = []
    liked = {gpus: Counter(gpu.node for gpu in gpus) for gpus in {item.liked for item in items}}
    for (number, node_id), count in (variables.blocks | variables.whole).items():
        item = items[number]
        away = 0 if liked[item.liked][node_id] >= item.block_gpus else 1
        terms.append((10_000 * len(order) * away + order[node_id]) * count)
    terms += _racks_touched(model, variables, items, cluster, 1_000 * len(order))
    on_node: dict[tuple[str, str], list[cp_model.IntVar]] = {}
    for (number, node_id), count in variables.blocks.items():
        on_node.setdefault((items[number].task, node_id), []).append(count)
    for (task, node_id), here in on_node.items() if len(order) > 1 else ():
        touched = model.new_bool_var(f"u_{task}_{node_id}")
        for count in here:
            model.add(count == 0).only_enforce_if(~touched)
        terms.append(100 * len(order) * touched)
    return sum(terms)


def _racks_touched(
    model: cp_model.CpModel, variables: _Variables, items: Sequence[Item], cluster: Cluster, each: int
) -> list[cp_model.LinearExprT]:
    """Charge every rack that a task has blocks in."""
    if not cluster.racks:
        return []
    here: dict[tuple[str, str | None], list[cp_model.IntVar]] = {}
    for (number, node_id), count in (variables.blocks | variables.whole).items():
        here.setdefault((items[number].task, cluster.node_of[node_id].rack), []).append(count)
    terms: list[cp_model.LinearExprT] = []
    for (task, rack), counts in here.items():
        touched = model.new_bool_var(f"r_{task}_{rack}")
        for count in counts:
            model.add(count == 0).only_enforce_if(~touched)
        terms.append(each * touched)
    return terms


def _hint(model: cp_model.CpModel, variables: _Variables, start: NodeAssignment) -> None:
    for at, count in variables.blocks.items():
        model.add_hint(count, start.blocks.get(at, 0))
    for at, count in variables.workers.items():
        model.add_hint(count, start.workers.get(at, 0))
    for (number, node), count in variables.whole.items():
        model.add_hint(count, int(node in start.whole_nodes.get(number, ())))


def _read(solver: cp_model.CpSolver, variables: _Variables, items: Sequence[Item]) -> NodeAssignment:
    whole: dict[int, list[str]] = {}
    for (number, node_id), x in variables.whole.items():
        if solver.value(x):
            whole.setdefault(number, []).append(node_id)
    gpus = {
        number: frozenset(gpu for (n, gpu), x in variables.gpus.items() if n == number and solver.value(x))
        for number, item in enumerate(items)
        if item.by_id and number not in whole
    }
    return NodeAssignment(
        {at: solver.value(x) for at, x in variables.blocks.items() if solver.value(x)},
        {number: tuple(nodes) for number, nodes in whole.items()},
        gpus,
        {at: solver.value(x) for at, x in variables.workers.items() if solver.value(x)},
    )

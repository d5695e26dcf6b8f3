"""What a task alone would reach on its weighted fair share, found by trying every configuration.

The verifier recomputes it where that is cheap, so that a plan cannot look good by a wrong yardstick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from math import prod

from libra_plan.models.topology import Cluster
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import CouplingKind, Policy, Problem, Role, StageOption, Task
from libra_plan.planner.verify.rules import Turn, arrangement_of, configuration_peak_mib, step_times

__all__ = ["blocks_needed", "node_sizes", "reference_is_cheap", "reference_steps_per_s"]

MOST_GPUS = 16
MOST_COMBINATIONS = 20_000

Pools = tuple[tuple[int, ...], ...]
Shape = tuple[Pools, ...]


def reference_is_cheap(problem: Problem, task: Task) -> bool:
    """Tell whether trying every configuration of the task takes well under a second."""
    combinations = prod(len(role.options) for role in task.gpu_roles) * 4 ** len(task.gpu_roles)
    return len(problem.cluster.gpus) <= MOST_GPUS and combinations <= MOST_COMBINATIONS


def reference_steps_per_s(problem: Problem, task: Task) -> float | None:
    """Give the task's best rate on its share of the GPUs, steps/s; None when it has no configuration.

    The share is all GPUs times the task's part of all weights, under `priority` those of its tier.
    When no configuration is that small, the rate of the smallest one counts in proportion.
    """
    rivals = [
        each for each in problem.tasks if problem.policy is not Policy.PRIORITY or each.tier == task.tier
    ]
    share = len(problem.cluster.gpus) * task.weight / sum(each.weight for each in rivals)
    configurations = list(_configurations(problem.cluster, task))
    if not configurations:
        return None
    inside = [steps_per_s for gpus, steps_per_s in configurations if gpus <= share + 1e-9]
    if inside:
        return max(inside)
    fewest = min(gpus for gpus, _ in configurations)
    return max(rate for gpus, rate in configurations if gpus == fewest) * share / fewest


def _configurations(cluster: Cluster, task: Task) -> Iterator[tuple[int, float]]:
    roles = task.gpu_roles
    usable = [[option for option in role.options if _allowed(cluster, role, option)] for role in roles]
    for shape in _shapes(task):
        for options in product(*usable):
            gpus = _gpus_needed(cluster, task, shape, options)
            if gpus is None:
                continue
            for modes in _modes(shape):
                ways = _ways(roles, options, shape, modes)
                if _works(cluster, ways):
                    yield gpus, 1.0 / step_times(task, ways)[0]


def _allowed(cluster: Cluster, role: Role, option: StageOption) -> bool:
    if not all(_room(cluster, option.gpu_class, size) for size in _sizes(option)):
        return False
    if role.pinned_gpus and not _covers(cluster, role, option):
        return False
    return role.min_gpus <= option.gpus and (role.max_gpus is None or option.gpus <= role.max_gpus)


def _covers(cluster: Cluster, role: Role, option: StageOption) -> bool:
    """Tell whether the replicas cover the pinned GPUs exactly, none cut by a node it does not fill.

    Replicas of several sizes are not put on pinned GPUs.
    """
    if option.mix:
        return False
    size, node = option.layout.gpus_per_replica, _node_size(cluster, option.gpu_class)
    here = Counter(gpu.node for gpu in role.pinned_gpus).values()
    packs = all(number % size == 0 if size <= node else number == node for number in here)
    if size > node:
        of_domain: Counter[str] = Counter()
        for gpu in role.pinned_gpus:
            of_domain[_domain(cluster, gpu.node)] += 1
        packs = packs and all(number % size == 0 for number in of_domain.values())
    return packs and option.gpus == len(role.pinned_gpus)


def _shapes(task: Task) -> Iterator[Shape]:
    count = len(task.gpu_roles)
    bound = any(role.pinned_gpus or role.excluded_gpus for role in task.roles)
    runs_only = task.coupling.kind is CouplingKind.PIPELINED
    for phases in _runs(tuple(range(count))):
        several = len(phases) > 1
        if several and bound:
            continue
        for shape in product(*(_runs(phase) if runs_only else _partitions(phase) for phase in phases)):
            if several and all(len(pools) == 1 for pools in shape):
                continue
            named = [[[str(role) for role in pool] for pool in pools] for pools in shape]
            if count == 1 or arrangement_of(named) in task.arrangements:
                yield tuple(shape)


def _runs(items: tuple[int, ...]) -> list[Pools]:
    """List the ways to cut a sequence into runs."""
    if not items:
        return [()]
    return [(items[:cut], *rest) for cut in range(1, len(items) + 1) for rest in _runs(items[cut:])]


def _partitions(items: tuple[int, ...]) -> list[Pools]:
    """List the ways to split a set into groups, whatever their order."""
    if not items:
        return [()]
    first, rest = items[0], items[1:]
    found: list[Pools] = []
    for groups in _partitions(rest):
        found.append(((first,), *groups))
        found += [(*groups[:at], (first, *group), *groups[at + 1 :]) for at, group in enumerate(groups)]
    return found


def _gpus_needed(cluster: Cluster, task: Task, shape: Shape, options: tuple[StageOption, ...]) -> int | None:
    """Count the GPUs of the configuration's blocks; None when an empty cluster has no room for them."""
    pools = [[[options[role] for role in pool] for pool in phase] for phase in shape]
    sharing = [options] if len(shape) > 1 else pools[0]  # those that take the same GPUs
    if any(len({option.gpu_class for option in pool}) > 1 for pool in sharing):
        return None
    blocks: list[list[tuple[str, int]]] = []
    for phase in pools:
        blocks.append([])
        for pool in phase:
            size = max(size for option in pool for size in _sizes(option))
            node = _node_size(cluster, pool[0].gpu_class)
            number = max(blocks_needed(node, option, size) for option in pool)
            if task.roles_fill_pools and any(option.gpus != size * number for option in pool):
                return None
            blocks[-1] += [(pool[0].gpu_class, size)] * number
    if len(shape) > 1:
        gpu_class = options[0].gpu_class
        largest = max(size for phase in blocks for _, size in phase)
        bins = [
            _bins([size for _, size in phase], largest, _node_size(cluster, gpu_class)) for phase in blocks
        ]
        blocks = [[(gpu_class, largest)] * max(bins)]
    needed = Counter(blocks[0])
    of_class: Counter[str] = Counter()
    for (gpu_class, size), number in needed.items():
        of_class[gpu_class] += size * number
        if number > _room(cluster, gpu_class, size):
            return None
    if any(number > sum(_node_gpus(cluster, gpu_class)) for gpu_class, number in of_class.items()):
        return None
    gpus = sum(of_class.values())
    return gpus if task.min_gpus <= gpus and (task.max_gpus is None or gpus <= task.max_gpus) else None


def _bins(sizes: list[int], largest: int, node: int) -> int:
    """Count the blocks of the largest size that smaller ones fit in, none cut by a node."""
    one = (largest,) if largest <= node else (node,) * (largest // node)
    number = 1
    while not _fit(sorted(sizes, reverse=True), (one,) * number):
        number += 1
    return number


def _fit(sizes: list[int], bins: tuple[tuple[int, ...], ...]) -> bool:
    if not sizes:
        return True
    return any(
        _fit(sizes[1:], tuple(sorted((*bins[:at], left, *bins[at + 1 :]))))
        for at, nodes in enumerate(bins)
        if nodes not in bins[:at]
        for left in _without(nodes, sizes[0])
    )


def _without(nodes: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """List what is left of a block's nodes once a smaller block is taken from one, or from several whole."""
    for at, free in enumerate(nodes):
        if free >= size and free not in nodes[:at]:
            yield tuple(sorted((*nodes[:at], free - size, *nodes[at + 1 :])))
    count = next((n for n in range(2, len(nodes) + 1) if n * max(nodes) == size), 0)
    if count and nodes[-count] == max(nodes):
        yield (*(0,) * count, *nodes[:-count])


def blocks_needed(node: int, option: StageOption, block: int) -> int:
    """Count the blocks that hold all replicas of a role, none of which may straddle two nodes."""
    size = option.layout.gpus_per_replica
    if option.mix:
        return _bins(_sizes(option), block, node)
    each = block // size if block <= node or size > node else (block // node) * (node // size)
    return -(-option.replicas // each)


def _sizes(option: StageOption) -> list[int]:
    """List the GPUs of every replica."""
    return [kind.layout.gpus_per_replica for kind in option.mix] or [
        option.layout.gpus_per_replica
    ] * option.replicas


def _room(cluster: Cluster, gpu_class: str, block: int) -> int:
    """Count the blocks of one size an empty cluster has; larger than a node, they are whole nodes."""
    nodes = _node_gpus(cluster, gpu_class)
    whole = max(nodes, default=0)
    if block <= whole:
        return sum(gpus // block for gpus in nodes)
    if not whole or block % whole:
        return 0
    full = Counter(
        _domain(cluster, node.id) for node, gpus in zip(cluster.nodes, nodes, strict=True) if gpus == whole
    )
    return sum(number // (block // whole) for number in full.values())


def _domain(cluster: Cluster, node_id: str) -> str:
    """Name the nodes that a replica on this one may span: its domain, or itself where others have one."""
    named = [node.nvlink_domain for node in cluster.nodes if node.nvlink_domain is not None]
    own = next(node.nvlink_domain for node in cluster.nodes if node.id == node_id)
    return "all" if not named else f"d:{own}" if own is not None else f"n:{node_id}"


def node_sizes(cluster: Cluster) -> dict[str, int]:
    """Count the GPUs of the largest node of each class; what others hold there is part of it."""
    usable = [(gpu.gpu_class, gpu.id.node) for node in cluster.nodes for gpu in node.gpus]
    absent = [(gpu.gpu_class, gpu.id.node) for gpu in cluster.absent]
    sizes: dict[str, int] = {}
    for (gpu_class, _), number in Counter(usable + absent).items():
        sizes[gpu_class] = max(number, sizes.get(gpu_class, 0))
    return sizes


def _node_size(cluster: Cluster, gpu_class: str) -> int:
    return node_sizes(cluster).get(gpu_class, 0)


def _node_gpus(cluster: Cluster, gpu_class: str) -> list[int]:
    return [sum(gpu.gpu_class == gpu_class for gpu in node.gpus) for node in cluster.nodes]


def _modes(shape: Shape) -> Iterator[tuple[MemoryMode, ...]]:
    """List the memory modes of the pools: one for all when phases share GPUs."""
    if len(shape) > 1:
        for mode in MemoryMode:
            yield (mode,) * sum(len(pools) for pools in shape)
        return
    yield from product(*(tuple(MemoryMode) if len(pool) > 1 else (MemoryMode.RESIDENT,) for pool in shape[0]))


def _ways(
    roles: tuple[Role, ...], options: tuple[StageOption, ...], shape: Shape, modes: tuple[MemoryMode, ...]
) -> list[list[Turn]]:
    mode = iter(modes)
    return [
        [
            Turn(tuple(roles[role] for role in pool), tuple(options[role] for role in pool), next(mode))
            for pool in pools
        ]
        for pools in shape
    ]


def _works(cluster: Cluster, ways: list[list[Turn]]) -> bool:
    """Tell whether every role can do what its mode asks, within the memory of its GPUs."""
    turns = [turn for phase in ways for turn in phase]
    for turn in turns:
        if (len(ways) > 1 or len(turn.options) > 1) and any(option.stream for option in turn.options):
            return False  # its price holds only where it never pauses
        asleep = turn.mode is MemoryMode.SLEEP
        if asleep and any(option.sleep_s is None or option.wake_s is None for option in turn.options):
            return False
    classes = {option.gpu_class for turn in turns for option in turn.options}
    if len(classes) == 1:
        return configuration_peak_mib(ways) <= cluster.memory_mib(*classes) + 1e-6
    return all(
        configuration_peak_mib([[turn]]) <= cluster.memory_mib(turn.options[0].gpu_class) + 1e-6
        for turn in turns
    )

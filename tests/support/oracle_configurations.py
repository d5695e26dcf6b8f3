"""Every configuration of a task, one by one, and what the task would reach alone: half of the oracle.

Written from the words of the design alone; it shares no code with the planner or the verifier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np

from libra_plan.models.topology import GpuId
from libra_plan.planner.problem import CouplingKind, Policy, Problem, Role, StageOption, Task


@dataclass(frozen=True)
class Way:
    """One configuration: per phase and pool the (role, option) pairs and whether they sleep."""

    phases: tuple[tuple[tuple[tuple[tuple[Role, StageOption], ...], bool], ...], ...]
    gpus: int
    seconds: float


class Configurations:
    """All configurations of the tasks of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.cluster = problem.cluster
        self._found: dict[str, list[Way]] = {}
        self.node_sizes: dict[str, dict[str, int]] = {}
        for gpu in self.cluster.gpus.values():
            sizes = self.node_sizes.setdefault(gpu.gpu_class, {})
            sizes[gpu.id.node] = sizes.get(gpu.id.node, 0) + 1

    def reference(self, task: Task) -> float | None:
        """Return the best rate on the fair share, or the smallest configuration's in proportion."""
        tiered = self.problem.policy is Policy.PRIORITY  # a tier shares among itself
        rivals = [each for each in self.problem.tasks if not tiered or each.tier == task.tier]
        share = len(self.cluster.gpus) * task.weight / sum(each.weight for each in rivals)
        ways = [way for way in self.ways(task) if self._fits_empty(way)]
        inside = [1.0 / way.seconds for way in ways if way.gpus <= share + 1e-9]
        if inside:
            return max(inside)
        if not ways:
            return None
        smallest = min(ways, key=lambda way: (way.gpus, way.seconds))
        return share / smallest.gpus / smallest.seconds

    def _fits_empty(self, way: Way) -> bool:
        """Return whether there is room for what fits into the blocks, cut to any one of their sizes."""
        blocks = self.blocks(way)
        for gpu_class, size in {*blocks, *((name, 1) for name, _ in blocks)}:
            node = max(self.node_sizes[gpu_class].values())
            needed = sum(
                number * (_cut(larger, size, node))
                for (name, larger), number in blocks.items()
                if name == gpu_class
            )
            if needed > self._blocks_of_empty(gpu_class, size):
                return False
        return True

    def _blocks_of_empty(self, gpu_class: str, size: int) -> int:
        sizes = list(self.node_sizes.get(gpu_class, {}).values())
        largest = max(sizes, default=0)
        if size > largest:  # whole nodes of the full size, those of one domain
            if not largest or size % largest:
                return 0
            full = [node for node, gpus in self.node_sizes[gpu_class].items() if gpus == largest]
            groups = {
                domain: [n for n in full if self.domain(n) == domain] for domain in map(self.domain, full)
            }
            return sum(len(nodes) // (size // largest) for nodes in groups.values())
        return sum(gpus // size for gpus in sizes)

    def ways(self, task: Task) -> list[Way]:
        """List every configuration of a task that its limits and the memory of the GPUs allow."""
        if task.id not in self._found:
            self._found[task.id] = list(self._ways_of(task))
        return self._found[task.id]

    def _ways_of(self, task: Task) -> Iterator[Way]:
        usable = [[(role, o) for o in role.options if self._may(role, o)] for role in task.gpu_roles]
        for shape in shapes(task):
            for pairs in product(*usable):
                for sleeping in _sleeping(shape):
                    phases = tuple(
                        tuple(
                            (tuple(pairs[at] for at in pool), sleep)
                            for pool, sleep in zip(pools, sleeps, strict=True)
                        )
                        for pools, sleeps in zip(shape, sleeping, strict=True)
                    )
                    way = self._way(task, phases)
                    if way is not None:
                        yield way

    def _may(self, role: Role, option: StageOption) -> bool:
        sizes = replica_sizes(option)
        if option.gpus < role.min_gpus or not all(
            self._blocks_of_empty(option.gpu_class, size) for size in sizes
        ):
            return False
        if role.max_gpus is not None and option.gpus > role.max_gpus:
            return False
        if not role.pinned_gpus:
            return True
        alike = not option.mix  # replicas of several sizes are not put on pinned GPUs
        return alike and option.gpus == len(role.pinned_gpus) and self._splits(role.pinned_gpus, option)

    def _way(self, task: Task, phases: Any) -> Way | None:
        together = [pool for phase in phases for pool, _ in phase]
        if len(phases) > 1:
            together = [sum(together, ())]
        if any(len({option.gpu_class for _, option in pool}) > 1 for pool in together):
            return None
        if not self._has_memory(phases):
            return None
        seconds = _step_seconds(task, phases)
        way = Way(phases, 0, seconds)
        needed = self.blocks(way)
        if task.roles_fill_pools and not self._filled(way):
            return None
        gpus = sum(size * number for (_, size), number in needed.items())
        if gpus < task.min_gpus or (task.max_gpus is not None and gpus > task.max_gpus):
            return None
        return Way(phases, gpus, seconds)

    def _has_memory(self, phases: Any) -> bool:
        for phase in phases:
            for pool, asleep in phase:
                if asleep and any(o.sleep_s is None or o.wake_s is None for _, o in pool):
                    return False
                if (len(phases) > 1 or len(pool) > 1) and any(option.stream for _, option in pool):
                    return False  # its price is for a role that never pauses
                room = self.cluster.memory_mib(pool[0][1].gpu_class)
                for other in phases:
                    if other is not phase:
                        room -= max(sum(_kept(o, sleep) for _, o in there) for there, sleep in other)
                for at, (_, option) in enumerate(pool):
                    others = sum(_kept(o, asleep) for place, (_, o) in enumerate(pool) if place != at)
                    if option.peak_mib + others > room + 1e-6:
                        return False
        return True

    def block(self, pool: Any, way: Way) -> tuple[str, int, int]:
        """Return class, size and number of a pool's blocks."""
        size = max(gpus for _, option in pool for gpus in replica_sizes(option))
        gpu_class = pool[0][1].gpu_class
        node = max(self.node_sizes[gpu_class].values())
        number = 0
        for _, option in pool:
            if option.mix:
                room = (min(size, node),) * max(1, size // node)
                number = max(number, fewest_bins(replica_sizes(option), size, room))
                continue
            replica = option.layout.gpus_per_replica
            whole = replica > node or size <= node
            each = size // replica if whole else (size // node) * (node // replica)
            number = max(number, -(-option.replicas // each))
        return gpu_class, size, number

    def blocks(self, way: Way) -> dict[tuple[str, int], int]:
        """Return the blocks of a configuration; phases take the same ones, all as large as the largest."""
        if len(way.phases) == 1:
            now: dict[tuple[str, int], int] = {}
            for pool, _ in way.phases[0]:
                gpu_class, size, number = self.block(pool, way)
                now[gpu_class, size] = now.get((gpu_class, size), 0) + number
            return now
        pools = [[self.block(pool, way) for pool, _ in phase] for phase in way.phases]
        gpu_class, largest = pools[0][0][0], max(size for phase in pools for _, size, _ in phase)
        node = max(self.node_sizes[gpu_class].values())
        room = (min(largest, node),) * max(1, largest // node)
        need = [
            fewest_bins(tuple(size for _, size, n in phase for _ in range(n)), largest, room)
            for phase in pools
        ]
        return {(gpu_class, largest): max(need)}

    def domain(self, node: str) -> object:
        """Return what nodes that carry one replica have in common."""
        own = {each.id: each.nvlink_domain for each in self.cluster.nodes}
        if not any(own.values()):
            return None
        return own[node] or (node,)

    def is_whole(self, replica: tuple[GpuId, ...]) -> bool:
        """Return whether a replica is on one node, or fills its class on nodes of one domain."""
        nodes = {gpu.node for gpu in replica}
        if len({self.domain(node) for node in nodes}) > 1:
            return False
        known = self.cluster.gpus
        own = known[replica[0]].gpu_class
        return len(nodes) == 1 or {
            gpu for gpu in known if gpu.node in nodes and known[gpu].gpu_class == own
        } == set(replica)

    def _filled(self, way: Way) -> bool:
        """Return whether every role takes all GPUs of its pool."""
        return all(
            option.gpus == self.block(pool, way)[1] * self.block(pool, way)[2]
            for phase in way.phases
            for pool, _ in phase
            for _, option in pool
        )

    def _splits(self, pinned: frozenset[GpuId], option: StageOption) -> bool:
        """Return whether replicas can cover the pinned GPUs, none cut by a node it does not fill."""
        size, sizes = option.layout.gpus_per_replica, self.node_sizes[option.gpu_class]
        here = {node: sum(gpu.node == node for gpu in pinned) for node in {gpu.node for gpu in pinned}}
        if size > max(sizes.values()):
            per_domain: dict[object, int] = {}
            for node, number in here.items():
                per_domain[self.domain(node)] = per_domain.get(self.domain(node), 0) + number
            filled = all(number == sizes.get(node) for node, number in here.items())
            return filled and all(number % size == 0 for number in per_domain.values())
        return all(number % size == 0 for number in here.values())

    def _pack(self, blocks: list[int], number: int) -> set[int]:
        found = {0}
        for _ in range(number):
            found = {one + block for one in found for block in blocks if self.fits(one + block)}
        return found


def _cut(block: int, size: int, node: int) -> int:
    """Count the pieces of one size, of one node or of whole nodes, that a block can be cut into."""
    if size <= node < block:
        return block // node * (node // size)
    return block // size


def replica_sizes(option: StageOption) -> tuple[int, ...]:
    """List the GPUs of every replica of an option."""
    if option.mix:
        return tuple(each.layout.tp * each.layout.pp * each.layout.cp for each in option.mix)
    return (option.layout.gpus_per_replica,) * option.replicas


@cache
def fewest_bins(items: tuple[int, ...], bin_size: int, nodes: tuple[int, ...]) -> int:
    """Count the equal bins that items fit in, by trying; a bin is one node's GPUs or whole nodes."""
    for bins in range(1, len(items) + 1):
        if _packs(tuple(sorted(items, reverse=True)), (nodes,) * bins, bin_size):
            return bins
    return 0


def _packs(items: tuple[int, ...], bins: tuple[tuple[int, ...], ...], bin_size: int) -> bool:
    if not items:
        return True
    first, rest = items[0], items[1:]
    tried = set()
    for at, room in enumerate(bins):
        for after in _fillings(first, room, bin_size):
            if (room, after) not in tried:
                tried.add((room, after))
                if _packs(rest, (*bins[:at], after, *bins[at + 1 :]), bin_size):
                    return True
    return False


def _fillings(item: int, room: tuple[int, ...], bin_size: int) -> Iterator[tuple[int, ...]]:
    """List what is left of a bin's nodes with an item in one of them, or in whole ones."""
    node = bin_size // len(room)
    if item <= node:
        for at, left in enumerate(room):
            if left >= item:
                yield (*room[:at], left - item, *room[at + 1 :])
    elif item % node == 0 and sum(left == node for left in room) >= item // node:
        emptied = item // node
        after = []
        for left in room:
            full = left == node and emptied > 0
            emptied -= full
            after.append(0 if full else left)
        yield tuple(after)


def _kept(option: StageOption, asleep: bool) -> float:
    return option.asleep_mib if asleep else option.static_mib


def _step_seconds(task: Task, phases: Any) -> float:
    step, pools = 0.0, 0
    for phase in phases:
        times, streams = [], []
        for pool, asleep in phase:
            pools += 1
            time = sum(option.time_s.value for _, option in pool)
            if asleep:
                time += sum(option.sleep_s + option.wake_s for _, option in pool)
            times.append(time)
            streams.append(pool[0][1].stream)
        if task.coupling.kind is CouplingKind.SYNC:
            step += sum(times)
        elif task.coupling.kind is CouplingKind.ASYNC:
            step += max(*times, _stale_seconds(times, streams, task.coupling.staleness))
        else:
            groups = task.coupling.groups or 1
            step += sum(times) / groups + (groups - 1) / groups * max(times)
    return step + (task.sync_s if pools > 1 else 0.0)


def _stale_seconds(times: list[float], streams: list[Any], staleness: int) -> float:
    """Return the least step at which no more than (1 + η) steps' trajectories are on their way."""
    rest = sum(time for time, stream in zip(times, streams, strict=True) if stream is None)
    streamed = [stream for stream in streams if stream is not None]
    if not streamed:
        return sum(times) / (1 + staleness)
    work, latency = max(each.work_s for each in streamed), max(each.latency_s for each in streamed)
    # (η + ½)·T² − (rest + (η + ½)·work + latency)·T + rest·work = 0
    most = staleness + 0.5
    return float(max(np.roots([most, -(rest + most * work + latency), rest * work]).real))


def shapes(task: Task) -> Iterator[tuple[tuple[tuple[int, ...], ...], ...]]:
    """List the ways to cut the GPU roles into phases and those into pools, as role numbers."""
    count = len(task.gpu_roles)
    named = {arrangement.value for arrangement in task.arrangements}
    fixed = any(role.pinned_gpus or role.excluded_gpus for role in task.roles)
    for labels in product(range(count), range(count), repeat=count):
        phase_of, pool_of = labels[0::2], labels[1::2]
        shape = _canonical(phase_of, pool_of)
        if shape is None:
            continue
        pools = [pool for phase in shape for pool in phase]
        if task.coupling.kind is CouplingKind.PIPELINED and any(p[-1] - p[0] != len(p) - 1 for p in pools):
            continue
        several = len(shape) > 1
        if several and (fixed or all(len(phase) == 1 for phase in shape)):
            continue
        alone = all(len(pool) == 1 for pool in pools)
        name = "colocated" if len(pools) == 1 else "separate" if alone and not several else "hybrid"
        if count == 1 or name in named:
            yield shape


def _canonical(
    phase_of: tuple[int, ...], pool_of: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], ...], ...] | None:
    """Turn labels into phases of pools; None unless phases are runs and labels as small as can be."""
    if list(phase_of) != sorted(phase_of) or phase_of[0] != 0:
        return None
    if any(after - before > 1 for before, after in pairwise(phase_of)):
        return None
    phases = []
    for phase in range(phase_of[-1] + 1):
        roles = [role for role, of in enumerate(phase_of) if of == phase]
        seen = [pool_of[role] for role in roles]
        if any(label > max(seen[:at], default=-1) + 1 for at, label in enumerate(seen)):
            return None
        phases.append(tuple(tuple(r for r in roles if pool_of[r] == label) for label in range(max(seen) + 1)))
    return tuple(phases)


def _sleeping(shape: tuple[tuple[tuple[int, ...], ...], ...]) -> Iterator[tuple[tuple[bool, ...], ...]]:
    if len(shape) > 1:
        for asleep in (False, True):
            yield tuple(tuple(asleep for _ in phase) for phase in shape)
    else:
        for choice in product(*((False, True) if len(pool) > 1 else (False,) for pool in shape[0])):
            yield (tuple(choice),)


def spreads(workers: int, nodes: int) -> Iterator[tuple[int, ...]]:
    """List the ways to share workers out among nodes."""
    if nodes == 1:
        yield (workers,)
        return
    for here in range(workers + 1):
        for rest in spreads(workers - here, nodes - 1):
            yield (here, *rest)

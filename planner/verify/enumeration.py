"""Every way to run one task, enumerated for the verifier: its step time and what it takes of the cluster.

Written from docs/design alone; nothing here is used to make a plan. Ways that another way beats in step time
and in every measured use are left out, and nothing else is: the best value at any dual prices, and the best
rate within any number of GPUs, are those of all ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Coupling, CouplingKind, Role, StageOption, Task
from libra_plan.planner.verify.blocks import (
    Inventory,
    bins_needed,
    blocks_needed,
    gpus_in_blocks,
    per_block,
    replica_sizes,
)
from libra_plan.planner.verify.rules import arrangement_of

__all__ = [
    "Floats",
    "Kind",
    "Shape",
    "TooManyWaysError",
    "Ways",
    "enumerate_ways",
    "shapes_of",
    "undominated",
]

Floats = NDArray[np.float64]
Kind = tuple[str, int]
"""GPU class and size of a block."""
Pools = tuple[tuple[int, ...], ...]
Shape = tuple[Pools, ...]

MOST_ROWS = 3_000_000
ROOM_MIB = 1e-6  # what a sum of memories may be over by rounding
_CHUNK = 256
_FEW = 24


class TooManyWaysError(Exception):
    """The ways to run a task are too many to be enumerated here."""


@dataclass(frozen=True)
class Ways:
    """The ways to run a task: `seconds` of a step, `gpus`, and `uses[way, row]` of the rows asked for.

    A row (GPU class, size) counts GPUs in blocks of at least that size.
    """

    seconds: Floats
    gpus: Floats
    uses: Floats

    def best_rate(self, share: float) -> float | None:
        """Return the best rate within a share of the GPUs, steps/s; None when the task has no way to run.

        When no way is that small, the rate of the smallest one counts in proportion.
        """
        if not len(self.seconds):
            return None
        within = self.seconds[self.gpus <= share + 1e-9]
        if len(within):
            return float(1.0 / within.min())
        fewest = self.gpus.min()
        return float(share / fewest / self.seconds[self.gpus == fewest].min())


def enumerate_ways(inventory: Inventory, task: Task, rows: Sequence[Kind]) -> Ways:
    """Enumerate the ways to run a task.

    Raises TooManyWaysError where they are too many.
    """
    maker = _Maker(inventory, task, rows)
    found = [table for shape in shapes_of(task) for table in maker.tables(shape)]
    table = np.concatenate(found) if found else np.zeros((0, 2 + len(rows)))
    most = len(inventory.cluster.gpus) if task.max_gpus is None else task.max_gpus
    limits = np.array([size * inventory.room(gpu_class, size) for gpu_class, size in rows])
    fits = (table[:, 1] >= task.min_gpus) & (table[:, 1] <= most) & (table[:, 2:] <= limits).all(axis=1)
    table = table[fits]
    table = table[undominated(table)]
    return Ways(table[:, 0], table[:, 1], table[:, 2:])


def undominated(table: Floats) -> NDArray[np.int64]:
    """Return the numbers of the rows that no other row equals or beats everywhere (less is better)."""
    if len(table) == 0:
        return np.zeros(0, dtype=np.int64)
    table = table[:, (table != table[0]).any(axis=0)]
    if not table.shape[1]:
        return np.zeros(1, dtype=np.int64)
    order = np.lexsort(table.T[::-1])
    if len(order) > _CHUNK:
        order = order[~_beaten_by_few(table[order])]
    front = np.zeros((0, table.shape[1]))
    kept: list[NDArray[np.int64]] = []
    for at in range(0, len(order), _CHUNK):
        numbers = order[at : at + _CHUNK]
        numbers = numbers[~np.logical_or.reduce(_at_most(front, table[numbers]), axis=0)]
        chunk = table[numbers]
        earlier = np.tri(len(chunk), k=-1, dtype=bool).T  # whoever beats a row stands before it, equals too
        beaten = np.logical_or.reduce(_at_most(chunk, chunk) & earlier, axis=0)
        kept.append(numbers[~beaten])
        front = np.concatenate([front, chunk[~beaten]])
    return np.concatenate(kept)


def _at_most(ones: Floats, others: Floats) -> NDArray[np.bool_]:
    """Return whether one row is nowhere larger than another, shape (ones, others)."""
    found = np.ones((len(ones), len(others)), dtype=bool)
    for one, other in zip(ones.T, others.T, strict=True):
        found &= one[:, None] <= other[None, :]
    return found


def _beaten_by_few(table: Floats) -> NDArray[np.bool_]:
    """Return which rows one of a few good rows beats: most of a large table, for little work."""
    scaled = (table - table.min(axis=0)) / np.ptp(table, axis=0)
    few = table[np.argsort(scaled.sum(axis=1), kind="stable")[:_FEW]]
    better = _at_most(few, table) & ~_at_most(table, few).T
    return np.asarray(np.logical_or.reduce(better, axis=0))


# ---------------------------------------------------------------- shapes


def shapes_of(task: Task) -> Iterator[Shape]:
    """List the ways to cut the GPU roles into phases and those into pools, as numbers of roles."""
    count = len(task.gpu_roles)
    fixed = any(role.pinned_gpus or role.excluded_gpus for role in task.roles)
    runs_only = task.coupling.kind is CouplingKind.PIPELINED
    for phases in _runs(tuple(range(count))):
        several = len(phases) > 1
        if several and fixed:
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


# ---------------------------------------------------------------- pools

# Columns of a pool: blocks, seconds, the largest (peak − kept), the sum of kept, stream's work and latency,
# and, where the task has a least number of GPUs, the GPUs with a minus.
_BLOCKS, _SECONDS, _ABOVE, _KEPT, _WORK, _LATENCY = range(6)


# Of (sum, most, rest, work, latency) of a phase's pools, what its step does not depend on.
_UNUSED_TIMES = {
    CouplingKind.SYNC: (1, 2, 3, 4),
    CouplingKind.PIPELINED: (2, 3, 4),
    CouplingKind.ASYNC: (0,),
}


class _Maker:
    """Makes the tables of one task; pools are made once for all shapes."""

    def __init__(self, inventory: Inventory, task: Task, rows: Sequence[Kind]) -> None:
        self.inventory, self.task, self.rows = inventory, task, rows
        self.classes = [name for name, gpus in inventory.gpus.items() if gpus]
        self._known: dict[tuple[tuple[int, ...], str, MemoryMode, bool], dict[int, Floats]] = {}
        self._alone: dict[tuple[int, ...], Floats] = {}

    def tables(self, shape: Shape) -> Iterator[Floats]:
        """Yield (seconds, GPUs, uses) of the ways of one shape."""
        if len(shape) == 1:
            yield from self._side_by_side(shape[0])
            return
        for gpu_class in self.classes:
            for mode in MemoryMode:
                yield from self._in_phases(shape, gpu_class, mode)

    # ------------------------------------------------ one phase

    def _side_by_side(self, pools: Pools) -> Iterator[Floats]:
        """One phase: each pool has GPUs of its own, of any class."""
        width = 2 + len(self.rows)  # (−GPUs where they may be too few), GPUs, uses
        together = np.zeros((1, width + 5))
        for pool in pools:
            if pool not in self._alone:
                self._alone[pool] = self._anywhere(pool)
            here = self._alone[pool]
            if not len(here):
                return
            together = self._merged(together, here, width)
        seconds = _coupled(together[:, width:], self.task.coupling)
        seconds = seconds + (self.task.sync_s if len(pools) > 1 else 0.0)
        yield np.column_stack([seconds, together[:, 1:width]])

    def _anywhere(self, pool: tuple[int, ...]) -> Floats:
        """Return (−GPUs, GPUs, uses, sum, most, rest, work, latency) of one pool, on any class."""
        modes = tuple(MemoryMode) if len(pool) > 1 else (MemoryMode.RESIDENT,)
        found = []
        for gpu_class, mode in product(self.classes, modes):
            node, most_mib = self.inventory.full_node_gpus[gpu_class], self._memory(gpu_class)
            for block, table in self._pools(pool, gpu_class, mode, len(pool) > 1).items():
                fits = (table[:, _ABOVE] + table[:, _KEPT] <= most_mib) & (
                    table[:, _BLOCKS] <= self.inventory.room(gpu_class, block)
                )
                here = table[fits]
                blocks, seconds = here[:, _BLOCKS], here[:, _SECONDS]
                streams = here[:, _LATENCY] > 0
                uses = self._uses(gpu_class, node, block, blocks)
                rest = np.where(streams, 0.0, seconds)
                found.append(
                    np.column_stack(
                        [
                            self._fewest(blocks * block),
                            blocks * block,
                            uses,
                            seconds,
                            seconds,
                            rest,
                            here[:, _WORK],
                            here[:, _LATENCY],
                        ]
                    )
                )
        return np.concatenate(found) if found else np.zeros((0, 0))

    def _merged(self, one: Floats, other: Floats, width: int) -> Floats:
        """Combine two sets of pools that run at once: GPUs, uses and work add up, the longest time counts."""
        if len(one) * len(other) > MOST_ROWS:
            raise TooManyWaysError
        a = np.repeat(one, len(other), axis=0)
        b = np.tile(other, (len(one), 1))
        both = a + b
        for column in (width + 1, width + 3, width + 4):  # the most of the pools
            both[:, column] = np.maximum(a[:, column], b[:, column])
        both[:, 0] = self._fewest(both[:, 1])
        within = both[:, 1] <= (self.task.max_gpus or len(self.inventory.cluster.gpus))
        both = both[within]
        matter = both.copy()
        matter[:, 1] = 0.0  # the uses say it
        matter[:, [width + column for column in _UNUSED_TIMES[self.task.coupling.kind]]] = 0.0
        return both[undominated(matter)]

    def _fewest(self, gpus: Floats) -> Floats:
        """Return a criterion that prefers more GPUs as long as the task may have too few."""
        found: Floats = -np.minimum(gpus, float(self.task.min_gpus))
        return found if self.task.min_gpus > 1 else np.zeros(len(gpus))

    def _memory(self, gpu_class: str) -> float:
        return self.inventory.memory_mib[gpu_class] + ROOM_MIB

    def _uses(self, gpu_class: str, node: int, block: int, blocks: Floats) -> Floats:
        factors = [gpus_in_blocks(node, block, size) if name == gpu_class else 0 for name, size in self.rows]
        return np.outer(blocks, np.array(factors, dtype=np.float64))

    # ------------------------------------------------ roles of a pool

    def _pools(
        self, pool: tuple[int, ...], gpu_class: str, mode: MemoryMode, shared: bool
    ) -> dict[int, Floats]:
        """Return the pools of some roles by size of block, without regard to memory."""
        key = (pool, gpu_class, mode, shared)
        if key not in self._known:
            roles = [self.task.gpu_roles[number] for number in pool]
            options = [self._usable(role, gpu_class, mode, shared) for role in roles]
            sizes = sorted({max(replica_sizes(option)) for each in options for option in each})
            found = {size: self._of_block(options, gpu_class, size, mode, shared) for size in sizes}
            self._known[key] = {size: table for size, table in found.items() if len(table)}
        return self._known[key]

    def _usable(self, role: Role, gpu_class: str, mode: MemoryMode, shared: bool) -> list[StageOption]:
        sleeps = shared and mode is MemoryMode.SLEEP
        return [
            option
            for option in role.options
            if option.gpu_class == gpu_class
            and role.min_gpus <= option.gpus
            and (role.max_gpus is None or option.gpus <= role.max_gpus)
            and all(self.inventory.room(gpu_class, size) for size in set(replica_sizes(option)))
            and not (role.pinned_gpus and not self.inventory.covers(role, option))
            and not (shared and option.stream)  # its price holds only where it never pauses
            and not (sleeps and (option.sleep_s is None or option.wake_s is None))
        ]

    def _of_block(
        self,
        options: Sequence[Sequence[StageOption]],
        gpu_class: str,
        block: int,
        mode: MemoryMode,
        shared: bool,
    ) -> Floats:
        node = self.inventory.full_node_gpus[gpu_class]
        tables = [
            np.array(
                [
                    _option_row(option, node, block, mode if shared else MemoryMode.RESIDENT, shared)
                    for option in each
                    if max(replica_sizes(option)) <= block
                    and (not self.task.roles_fill_pools or option.gpus % block == 0)
                ]
            ).reshape(-1, 8)
            for each in options
        ]
        if self.task.roles_fill_pools:
            tables = [table[table[:, 7] == table[:, _BLOCKS] * block] for table in tables]
        together = tables[0][:, :7]
        for table in tables[1:]:
            together = self._with_role(together, table[:, :7], block)
        together = self._thinned(together, block)
        return together[together[:, 6] < 0]  # some replica is as large as the block

    def _with_role(self, one: Floats, other: Floats, block: int) -> Floats:
        one, other = self._thinned(one, block), self._thinned(other, block)
        if len(one) * len(other) > MOST_ROWS:
            raise TooManyWaysError
        a = np.repeat(one, len(other), axis=0)
        b = np.tile(other, (len(one), 1))
        if self.task.roles_fill_pools:
            same = a[:, _BLOCKS] == b[:, _BLOCKS]
            a, b = a[same], b[same]
        both = np.maximum(a, b)
        both[:, _SECONDS] = a[:, _SECONDS] + b[:, _SECONDS]
        both[:, _KEPT] = a[:, _KEPT] + b[:, _KEPT]
        both[:, 6] = np.minimum(a[:, 6], b[:, 6])
        return both

    def _thinned(self, table: Floats, block: int) -> Floats:
        """Remove pools that others beat in everything that later steps use."""
        measures = [table]
        if self.task.roles_fill_pools or self.task.min_gpus > 1:
            measures.append(-table[:, _BLOCKS : _BLOCKS + 1])  # more blocks are not worse
        return table[undominated(np.concatenate(measures, axis=1))]

    # ------------------------------------------------ several phases

    def _in_phases(self, shape: Shape, gpu_class: str, mode: MemoryMode) -> Iterator[Floats]:
        """Phases take the same blocks one after the other; the blocks are as large as the largest of all."""
        node = self.inventory.full_node_gpus[gpu_class]
        pools = [[self._pools(pool, gpu_class, mode, True) for pool in phase] for phase in shape]
        for block in sorted({size for phase in pools for pool in phase for size in pool}):
            # blocks, seconds, the largest (peak − left), the sum of left, −1 once a pool has such blocks
            together = np.zeros((1, 5))
            for phase in pools:
                here = self._phase(phase, block, node)
                together = self._after(together, here)
            blocks = together[:, 0]
            fits = together[:, 2] + together[:, 3] <= self._memory(gpu_class)
            fits &= (blocks <= self.inventory.room(gpu_class, block)) & (together[:, 4] < 0)
            together, blocks = together[fits], blocks[fits]
            uses = self._uses(gpu_class, node, block, blocks)
            yield np.column_stack([together[:, 1] + self.task.sync_s, blocks * block, uses])

    def _after(self, one: Floats, other: Floats) -> Floats:
        if len(one) * len(other) > MOST_ROWS:
            raise TooManyWaysError
        a = np.repeat(one, len(other), axis=0)
        b = np.tile(other, (len(one), 1))
        both = np.column_stack(
            [
                np.maximum(a[:, 0], b[:, 0]),
                a[:, 1] + b[:, 1],
                np.maximum(a[:, 2], b[:, 2]),
                a[:, 3] + b[:, 3],
                np.minimum(a[:, 4], b[:, 4]),
            ]
        )
        return self._thinned(both, 1)

    def _phase(self, pools: Sequence[dict[int, Floats]], block: int, node: int) -> Floats:
        """Return (blocks, seconds, peak − left, left, −1 for the largest) of pools within larger blocks."""
        found = []
        for sizes in product(*pools):
            if max(sizes) > block:
                continue
            numbers = np.zeros((1, len(sizes)))
            table = np.zeros((1, 5))  # sum, most, rest, peak, left
            table[:, 3:] = -np.inf
            for at, (size, pool) in enumerate(zip(sizes, pools, strict=True)):
                numbers, table = _beside(numbers, table, at, pool[size])
            seconds = _coupled(np.column_stack([table[:, :3], np.zeros((len(table), 2))]), self.task.coupling)
            needed = _blocks_around(numbers, sizes, block, node)
            largest = np.full(len(needed), -float(block in sizes))
            found.append(np.column_stack([needed, seconds, table[:, 3] - table[:, 4], table[:, 4], largest]))
        return self._thinned(np.concatenate(found), 1) if found else np.zeros((0, 5))


def _option_row(
    option: StageOption, node: int, block: int, mode: MemoryMode, shared: bool
) -> tuple[float, ...]:
    """Return the columns of one option, whether it fills its block last but one, and its GPUs."""
    asleep = shared and mode is MemoryMode.SLEEP
    kept = option.asleep_mib if asleep else option.static_mib
    switching = (option.sleep_s or 0.0) + (option.wake_s or 0.0) if asleep else 0.0
    stream = option.stream
    return (
        float(blocks_needed(node, option, block)),
        option.time_s.value + switching,
        option.peak_mib - kept,
        kept,
        stream.work_s if stream else 0.0,
        stream.latency_s if stream else 0.0,
        -float(max(replica_sizes(option)) == block),
        float(option.gpus),
    )


def _beside(numbers: Floats, table: Floats, at: int, pool: Floats) -> tuple[Floats, Floats]:
    """Add a pool to others of a phase: times add up, the largest peak and rest count."""
    if len(table) * len(pool) > MOST_ROWS:
        raise TooManyWaysError
    a, count = np.repeat(table, len(pool), axis=0), np.repeat(numbers, len(pool), axis=0)
    b = np.tile(pool, (len(table), 1))
    count[:, at] = b[:, _BLOCKS]
    seconds, peak = b[:, _SECONDS], b[:, _ABOVE] + b[:, _KEPT]
    both = np.column_stack(
        [
            a[:, 0] + seconds,
            np.maximum(a[:, 1], seconds),
            a[:, 2] + seconds,
            np.maximum(a[:, 3], peak),
            np.maximum(a[:, 4], b[:, _KEPT]),
        ]
    )
    kept = undominated(np.column_stack([count, both]))
    return count[kept], both[kept]


def _blocks_around(numbers: Floats, sizes: Sequence[int], block: int, node: int) -> Floats:
    """Return how many larger blocks hold `numbers[row, pool]` blocks of the pools' sizes."""
    if len(sizes) == 1:
        found: Floats = np.ceil(numbers[:, 0] / per_block(node, sizes[0], block))
        return found
    needed = []
    for row in numbers:
        items = [size for size, number in zip(sizes, row, strict=True) for _ in range(int(number))]
        needed.append(float(bins_needed(tuple(sorted(items, reverse=True)), block, node)))
    return np.array(needed)


def _coupled(times: Floats, coupling: Coupling) -> Floats:
    """Return the seconds of a phase from (sum, most, rest, work, latency) of its pools (rules.py)."""
    total, most, rest, work, latency = times.T
    if coupling.kind is CouplingKind.SYNC:
        return np.asarray(total)
    if coupling.kind is CouplingKind.PIPELINED:
        share = 1.0 / (coupling.groups or 1)
        found: Floats = share * total + (1.0 - share) * most
        return found
    # The larger root of (T·(η + ½) − rest)·(T − work) = latency·T, where a rollout streams.
    half = coupling.staleness + 0.5
    middle = (rest + half * work + latency) / (2.0 * half)
    streaming = middle + np.sqrt(np.maximum(middle * middle - rest * work / half, 0.0))
    stale = np.where(latency > 0, streaming, rest / (1.0 + coupling.staleness))
    return np.asarray(np.maximum(most, stale))

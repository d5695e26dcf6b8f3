"""Configurations of several phases: the same GPUs serve one phase after the other.

All blocks of such a configuration have the size of its largest block, so that every phase packs into
them. For each number of blocks and each phase only the options that nothing beats in time, memory
and host memory are combined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.configurations.capacity import ClassCapacity
from libra_plan.planner.configurations.packing import are_nested, blocks_around
from libra_plan.planner.configurations.pareto import combinations, pareto_front
from libra_plan.planner.configurations.phases import PhaseTable
from libra_plan.planner.problem import Task

__all__ = ["count_blocks", "shared_phases"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def shared_phases(
    tables: Sequence[PhaseTable], task: Task, capacity: ClassCapacity
) -> Iterator[tuple[int, Ints, Ints]]:
    """Choose one row per phase such that all fit the same blocks and each GPU's memory.

    Yields a size of blocks, and for every choice the number of blocks and the rows, shape (choices, phases).
    There are more blocks only where they gain something, be it the GPUs that the task must have at least.
    """
    for block_gpus in sorted({size for table in tables for _, size in table.kinds}):
        rows, candidates = [], []
        for table in tables:
            needs = count_blocks(table, block_gpus, capacity)
            possible = np.flatnonzero((needs > 0) & (needs <= capacity.rooms(block_gpus)))
            measures = _measures(table, task, block_gpus, needs)[possible]
            front = np.sort(pareto_front(np.column_stack((needs[possible], measures))))
            rows.append(possible[front])
            candidates.append((needs[possible[front]], measures[front]))
        picked, numbers = combinations(candidates)
        chosen = np.column_stack([own[pick] for own, pick in zip(rows, picked.T, strict=True)])
        each = [measures[pick] for (_, measures), pick in zip(candidates, picked.T, strict=True)]
        smaller, more, seconds, peak, left, host = np.stack(each).transpose(2, 1, 0)
        fits = (peak + left.sum(axis=1)[:, None] - left).max(axis=1) <= capacity.memory_mib
        fits &= ~smaller.all(axis=1)  # a configuration of smaller blocks
        more = -np.minimum(numbers * block_gpus, task.min_gpus)
        compared = np.column_stack((numbers, more, seconds.sum(axis=1), host.sum(axis=1)))
        possible = np.flatnonzero(fits)
        kept = np.sort(possible[pareto_front(compared[possible].astype(np.float64))])
        yield block_gpus, numbers[kept], chosen[kept]


def _measures(table: PhaseTable, task: Task, block_gpus: int, needs: Ints) -> Floats:
    """Measure what phases on the same blocks are compared in.

    The first is 1 for a phase without blocks as large as those: the configuration needs one that has some.
    """
    largest = [number for number, (_, size) in enumerate(table.kinds) if size == block_gpus]
    smaller = ~(table.blocks[:, largest] > 0).any(axis=1)
    more = -np.minimum(needs * block_gpus, task.min_gpus)
    return np.column_stack(
        (smaller, more, table.time_s(task), table["peak"], table["left"], table["host_per_gpu"])
    )


def count_blocks(table: PhaseTable, block_gpus: int, capacity: ClassCapacity) -> Ints:
    """Count, by row, the blocks of one size that hold a phase; 0 where one of its own is larger."""
    sizes = [size for _, size in table.kinds]
    full = capacity.full_node_gpus
    nested = are_nested([size for size in sizes if size <= block_gpus] + [block_gpus], full)
    if nested:
        larger = [number for number, size in enumerate(sizes) if size > block_gpus]
        return np.where((table.blocks[:, larger] > 0).any(axis=1), 0, -(-table.gpus // block_gpus))
    rows = [tuple(zip(sizes, map(int, row), strict=True)) for row in table.blocks]
    return np.array([blocks_around(row, block_gpus, full) or 0 for row in rows], dtype=np.int64)

"""Configurations of several phases: the same GPUs serve one phase after the other.

All blocks of such a configuration have the size of its largest block, so that every phase packs into
them. For each number of blocks and each phase only the options that nothing beats in time, memory
and host memory are combined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.configurations.capacity import ClassCapacity
from libra_plan.planner.configurations.packing import are_nested, blocks_around
from libra_plan.planner.configurations.pareto import Front, insert, undominated
from libra_plan.planner.configurations.phases import PhaseTable
from libra_plan.planner.problem import Coupling

__all__ = ["count_blocks", "shared_phases"]


def shared_phases(
    tables: Sequence[PhaseTable], coupling: Coupling, capacity: ClassCapacity, least_gpus: int = 0
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Choose one row per phase such that all fit the same blocks and each GPU's memory.

    Yields (block size, number of blocks, rows); more blocks only where they gain something, such as
    the GPUs that the task must have at least.
    """
    for block_gpus in sorted({size for table in tables for _, size in table.kinds}):
        fronts = [_front(table, coupling, block_gpus, capacity, least_gpus) for table in tables]
        eligible: list[Front[_Entry]] = [[] for _ in tables]
        best: Front[tuple[_Entry, ...]] = []  # over all numbers so far: more blocks must gain something
        for number in sorted({need for front in fronts for need in front}):
            if number > capacity.rooms(block_gpus):
                break
            fresh = False
            more = -float(min(number * block_gpus, least_gpus))
            for at, front in enumerate(fronts):
                for entry in front.get(number, ()):
                    fresh |= insert(eligible[at], (more, *entry.measures), entry)
            choices = product(*([entry for _, entry in each] for each in eligible)) if fresh else ()
            for choice in choices:
                if any(entry.has_largest for entry in choice) and _fits(choice, capacity.memory_mib):
                    seconds = sum(entry.seconds for entry in choice)
                    insert(best, (more, seconds, sum(entry.host_per_gpu for entry in choice)), choice)
            for _, choice in best:
                if fresh and any(entry.need == number for entry in choice):
                    yield block_gpus, number, tuple(entry.row for entry in choice)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A phase with the blocks it needs; memory in MiB: its peak and what it leaves behind.

    `has_largest` tells whether a block of its own is as large as those of the configuration.
    """

    row: int
    need: int
    has_largest: bool
    seconds: float
    peak: float
    left: float
    host_per_gpu: float

    @property
    def measures(self) -> tuple[float, ...]:
        """Return the measures by which phases on the same blocks are compared."""
        return float(not self.has_largest), self.seconds, self.peak, self.left, self.host_per_gpu


def _front(
    table: PhaseTable, coupling: Coupling, block_gpus: int, capacity: ClassCapacity, least_gpus: int
) -> dict[int, list[_Entry]]:
    """List the phases that nothing beats in blocks, time, memory and host memory, by blocks needed."""
    needs = count_blocks(table, block_gpus, capacity)
    possible = np.flatnonzero(needs > 0)
    largest = [number for number, (_, size) in enumerate(table.kinds) if size == block_gpus]
    lacks = (table.blocks[:, largest] > 0).sum(axis=1) == 0
    seconds = table.time_s(coupling)
    measures = np.column_stack((needs, lacks, seconds, table.peak, table.left, table.host_per_gpu))
    front: dict[int, list[_Entry]] = {}
    compared = np.column_stack((measures, -np.minimum(needs * block_gpus, least_gpus)))
    for row in possible[undominated(compared[possible].astype(np.float64))]:
        rest = (float(value) for value in measures[row, 2:])
        entry = _Entry(int(row), int(needs[row]), not lacks[row], *rest)
        front.setdefault(entry.need, []).append(entry)
    return front


def count_blocks(table: PhaseTable, block_gpus: int, capacity: ClassCapacity) -> NDArray[np.int64]:
    """Count, by row, the blocks of one size that hold a phase; 0 where one of its own is larger."""
    sizes = [size for _, size in table.kinds]
    full = capacity.full_node_gpus
    nested = are_nested([size for size in sizes if size <= block_gpus] + [block_gpus], full)
    if nested:
        larger = [number for number, size in enumerate(sizes) if size > block_gpus]
        return np.where((table.blocks[:, larger] > 0).any(axis=1), 0, -(-table.gpus // block_gpus))
    rows = [tuple(zip(sizes, map(int, row), strict=True)) for row in table.blocks]
    return np.array([blocks_around(row, block_gpus, full) or 0 for row in rows], dtype=np.int64)


def _fits(choice: tuple[_Entry, ...], memory_mib: float) -> bool:
    """Check each phase's peak beside what all other phases leave behind."""
    everything = sum(entry.left for entry in choice)
    return all(entry.peak + everything - entry.left <= memory_mib for entry in choice)

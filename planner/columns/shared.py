"""Columns of several phases: the same GPUs serve one phase after the other.

All blocks of such a column have the size of its largest block, so that every phase packs into
them. For each number of blocks and each phase only the options that nothing beats in time, memory
and host memory are combined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.columns.capacity import ClassCapacity, replicas_per_block
from libra_plan.planner.columns.pareto import Front, insert, undominated
from libra_plan.planner.columns.phases import PhaseTable
from libra_plan.planner.problem import Coupling

__all__ = ["blocks_needed", "shared_phases"]


def shared_phases(
    tables: Sequence[PhaseTable], coupling: Coupling, capacity: ClassCapacity
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Choose one row per phase such that all fit the same blocks and each GPU's memory.

    Gives (block size, number of blocks, rows); more blocks only where they gain something.
    """
    for block_gpus in sorted({size for table in tables for size in table.sizes}):
        fronts = [_front(table, coupling, blocks_needed(table, block_gpus, capacity)) for table in tables]
        eligible: list[Front[_Entry]] = [[] for _ in tables]
        best: Front[tuple[_Entry, ...]] = []  # over all numbers so far: more blocks must gain something
        for number in sorted({need for front in fronts for need in front}):
            if number > capacity.rooms(block_gpus):
                break
            fresh = False
            for at, front in enumerate(fronts):
                for entry in front.get(number, ()):
                    fresh |= insert(eligible[at], entry.measures, entry)
            choices = product(*([entry for _, entry in each] for each in eligible)) if fresh else ()
            for choice in choices:
                if _fits(choice, capacity.memory_mib):
                    seconds = sum(entry.seconds for entry in choice)
                    insert(best, (seconds, sum(entry.host_per_gpu for entry in choice)), choice)
            for _, choice in best:
                if fresh and any(entry.need == number for entry in choice):
                    yield block_gpus, number, tuple(entry.row for entry in choice)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A phase with the blocks it needs; memory in MiB: its peak and what it leaves behind."""

    row: int
    need: int
    seconds: float
    peak: float
    left: float
    host_per_gpu: float

    @property
    def measures(self) -> tuple[float, ...]:
        """Give what phases on the same blocks are compared in."""
        return self.seconds, self.peak, self.left, self.host_per_gpu


def _front(table: PhaseTable, coupling: Coupling, needs: NDArray[np.int64]) -> dict[int, list[_Entry]]:
    """List the phases that nothing beats in blocks, time, memory and host memory, by blocks needed."""
    possible = np.flatnonzero(needs > 0)
    seconds = table.time_s(coupling)
    measures = np.column_stack((needs, seconds, table.peak, table.left, table.host_per_gpu))
    front: dict[int, list[_Entry]] = {}
    for row in possible[undominated(measures[possible].astype(np.float64))]:
        entry = _Entry(int(row), int(needs[row]), *(float(value) for value in measures[row, 1:]))
        front.setdefault(entry.need, []).append(entry)
    return front


def blocks_needed(table: PhaseTable, block_gpus: int, capacity: ClassCapacity) -> NDArray[np.int64]:
    """Count, by row, the blocks of one size that hold a phase; 0 where a block of its own does not divide it.

    Sizes that divide each other leave no rest but in the last block; others are counted apart.
    """
    sizes = table.sizes
    each = [replicas_per_block(block_gpus, size, capacity.full_node_gpus) for size in sizes]
    whole = [number and number * size == block_gpus for number, size in zip(each, sizes, strict=True)]
    used = table.blocks > 0
    possible = ~(used & ~np.array(whole, dtype=bool)).any(axis=1)
    if all(large % small == 0 for small, large in pairwise(sizes)):
        needed = -(-table.gpus // block_gpus)
    else:
        needed = (-(-table.blocks // np.array([max(1, n) for n in each]))).sum(axis=1)
    return np.where(possible, needed, 0)


def _fits(choice: tuple[_Entry, ...], memory_mib: float) -> bool:
    """Check each phase's peak beside what all other phases leave behind."""
    everything = sum(entry.left for entry in choice)
    return all(entry.peak + everything - entry.left <= memory_mib for entry in choice)

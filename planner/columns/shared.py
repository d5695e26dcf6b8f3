"""Columns of several phases: the same GPUs serve one phase after the other.

All blocks of such a column have the size of its largest block, so that every phase packs into
them. For each number of blocks and each phase only the options that nothing beats in time, memory
and host memory are combined.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from libra_plan.planner.columns.capacity import ClassCapacity, replicas_per_block
from libra_plan.planner.columns.pareto import Front, insert
from libra_plan.planner.columns.phases import PhaseOption, coupled_time_s
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Coupling

__all__ = ["blocks_needed", "shared_phases"]


def shared_phases(
    phases: list[list[PhaseOption]], mode: MemoryMode, coupling: Coupling, capacity: ClassCapacity
) -> Iterator[tuple[PhaseOption, ...]]:
    """Choose one option per phase such that all fit the same blocks and each GPU's memory."""
    sizes = sorted({size for options in phases for option in options for size, _ in option.blocks})
    for block_gpus in sizes:
        by_need = [_by_need(options, block_gpus, capacity) for options in phases]
        eligible: list[Front[PhaseOption]] = [[] for _ in phases]
        for number in sorted({need for needs in by_need for need in needs}):
            if number > capacity.rooms(block_gpus):
                break
            for at, needs in enumerate(by_need):
                for option in needs.get(number, ()):
                    insert(eligible[at], _measures(option, mode, coupling), option)
            for choice in product(*eligible):
                if _fits([measures for measures, _ in choice], capacity.memory_mib):
                    yield tuple(option for _, option in choice)


def blocks_needed(option: PhaseOption, block_gpus: int, capacity: ClassCapacity) -> int | None:
    """Count blocks of one size that hold a phase; None when one of its own blocks does not divide it."""
    needed = 0
    spare = 0  # GPUs left in the last opened block; sizes are nested, so large ones go first
    for size, number in sorted(option.blocks, reverse=True):
        each = replicas_per_block(block_gpus, size, capacity.full_node_gpus)
        if block_gpus % size or not each:
            return None
        from_spare = min(number, spare // size)
        spare -= from_spare * size
        opened = -(-(number - from_spare) // each)
        needed += opened
        spare += opened * block_gpus - (number - from_spare) * size
    return needed


def _by_need(
    options: list[PhaseOption], block_gpus: int, capacity: ClassCapacity
) -> dict[int, list[PhaseOption]]:
    needs: dict[int, list[PhaseOption]] = {}
    for option in options:
        number = blocks_needed(option, block_gpus, capacity)
        if number is not None:
            needs.setdefault(number, []).append(option)
    return needs


def _measures(option: PhaseOption, mode: MemoryMode, coupling: Coupling) -> tuple[float, ...]:
    """Give (seconds, peak MiB, MiB left behind for other phases, host MiB per GPU)."""
    return (
        coupled_time_s(option.sum_s, option.max_s, coupling),
        option.peak_mib,
        option.left_behind_mib(mode),
        option.host_mib_per_gpu,
    )


def _fits(choice: list[tuple[float, ...]], memory_mib: float) -> bool:
    """Check each phase's peak beside what all other phases leave behind."""
    everything = sum(left for _, _, left, _ in choice)
    return all(peak + everything - left <= memory_mib for _, peak, left, _ in choice)

"""Phases: pools side by side, their times put together as the coupling says.

With pool times t_i: sync Σt_i; async max t_i; pipelined over m groups Σt_i/m + (1 − 1/m)·max t_i
(the first two are m = 1 and m → ∞; RLinf's disaggregated cost is the third).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libra_plan.planner.columns.pareto import Front, insert
from libra_plan.planner.columns.pools import PoolOption
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Coupling, CouplingKind

__all__ = ["PhaseOption", "coupled_time_s", "phase_options"]

Blocks = tuple[tuple[int, int], ...]
"""Blocks needed: (size, number), sizes ascending."""


@dataclass(frozen=True, slots=True)
class PhaseOption:
    """A phase: its pools, the sum and the largest of their times, and the blocks it needs."""

    pools: tuple[PoolOption, ...]
    blocks: Blocks
    sum_s: float
    max_s: float

    @property
    def gpus(self) -> int:
        """Count the GPUs."""
        return sum(size * number for size, number in self.blocks)

    @property
    def host_mib(self) -> float:
        """Give the host memory of all its pools, MiB."""
        return sum(each.pool.host_memory_mib_per_gpu * each.pool.gpus for each in self.pools)

    @property
    def host_mib_per_gpu(self) -> float:
        """Give the most host memory any of its GPUs brings, MiB."""
        return max(each.pool.host_memory_mib_per_gpu for each in self.pools)

    @property
    def peak_mib(self) -> float:
        """Give the most memory any of its GPUs needs, MiB."""
        return max(each.pool.peak_mib for each in self.pools)

    def left_behind_mib(self, mode: MemoryMode) -> float:
        """Give the most that stays on a GPU while another phase has it, MiB."""
        return max(each.left_behind_mib(mode) for each in self.pools)


def coupled_time_s(sum_s: float, max_s: float, coupling: Coupling) -> float:
    """Give the time of a phase whose pools take `sum_s` seconds together and `max_s` at most."""
    if coupling.kind is CouplingKind.SYNC:
        return sum_s
    if coupling.kind is CouplingKind.ASYNC:
        return max_s
    groups = coupling.groups or 1
    return sum_s / groups + (1.0 - 1.0 / groups) * max_s


def phase_options(
    pools: Sequence[list[PoolOption]],
    coupling: Coupling,
    gpus: int,
    between_phases: MemoryMode | None = None,
) -> list[PhaseOption]:
    """List the phases worth considering, one option for each pool, on at most `gpus` GPUs.

    A phase is dropped only when another needs exactly the same blocks, no more host memory (and,
    between phases, no more GPU memory) and is no slower whatever further pools are put beside it:
    while pools are still to come both sum and maximum matter.
    """
    found = [PhaseOption((), (), 0.0, 0.0)]
    for options in pools:
        merged: dict[Blocks, Front[PhaseOption]] = {}
        for phase in found:
            for option in options:
                if phase.gpus + option.pool.gpus <= gpus:
                    new = _beside(phase, option)
                    insert(merged.setdefault(new.blocks, []), _measures(new, coupling, between_phases), new)
        found = [phase for same in merged.values() for _, phase in same]
    return found


def _beside(phase: PhaseOption, option: PoolOption) -> PhaseOption:
    blocks = dict(phase.blocks)
    blocks[option.pool.block_gpus] = blocks.get(option.pool.block_gpus, 0) + option.pool.blocks
    return PhaseOption(
        (*phase.pools, option),
        tuple(sorted(blocks.items())),
        phase.sum_s + option.time_s,
        max(phase.max_s, option.time_s),
    )


def _measures(phase: PhaseOption, coupling: Coupling, between_phases: MemoryMode | None) -> tuple[float, ...]:
    times = {
        CouplingKind.SYNC: (phase.sum_s,),
        CouplingKind.ASYNC: (phase.max_s,),
        CouplingKind.PIPELINED: (phase.sum_s, phase.max_s),
    }[coupling.kind]
    if between_phases is None:
        return (*times, phase.host_mib)
    return (
        *times,
        phase.host_mib,
        phase.host_mib_per_gpu,
        phase.peak_mib,
        phase.left_behind_mib(between_phases),
    )

"""Phases: pools side by side, their times put together as the coupling says.

With pool times t_i: sync Σt_i; async max t_i; pipelined over m groups Σt_i/m + (1 − 1/m)·max t_i
(the first two are m = 1 and m → ∞; RLinf's disaggregated cost is the third).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.columns.packing import are_nested
from libra_plan.planner.columns.pareto import undominated
from libra_plan.planner.columns.pools import PoolOption
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Coupling, CouplingKind

__all__ = ["Kind", "PhaseTable", "at_least", "coupled_time_s", "phase_table"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Kind = tuple[str, int]
"""GPU class and size of blocks."""


def coupled_time_s(sum_s: float, max_s: float, coupling: Coupling) -> float:
    """Give the time of a phase whose pools take `sum_s` seconds together and `max_s` at most."""
    if coupling.kind is CouplingKind.SYNC:
        return sum_s
    if coupling.kind is CouplingKind.ASYNC:
        return max_s
    groups = coupling.groups or 1
    return sum_s / groups + (1.0 - 1.0 / groups) * max_s


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """Phases of one shape, a row each.

    `picks[row, pool]` is the number of the pool's option; `blocks[row, kind]` counts blocks of
    `kinds`, (GPU class, size) each. Times in seconds: the sum and the largest over pools. Memory in
    MiB: `host` of all pools, `host_per_gpu`, `peak` and `left` (behind, for other phases) the most
    of any.
    """

    options: tuple[Sequence[PoolOption], ...]
    kinds: tuple[Kind, ...]
    picks: Ints
    blocks: Ints
    sum_s: Floats
    max_s: Floats
    host: Floats
    host_per_gpu: Floats
    peak: Floats
    left: Floats

    def __len__(self) -> int:
        return len(self.picks)

    @property
    def gpus(self) -> Ints:
        """Count GPUs, by row."""
        return self.blocks @ np.array([size for _, size in self.kinds], dtype=np.int64)

    def time_s(self, coupling: Coupling) -> Floats:
        """Give the time of each phase, seconds."""
        if coupling.kind is CouplingKind.SYNC:
            return self.sum_s
        if coupling.kind is CouplingKind.ASYNC:
            return self.max_s
        groups = coupling.groups or 1
        return self.sum_s / groups + (1.0 - 1.0 / groups) * self.max_s

    def pools(self, row: int) -> tuple[PoolOption, ...]:
        """List the pools of a row."""
        return tuple(options[pick] for options, pick in zip(self.options, self.picks[row], strict=True))

    def keep(self, rows: NDArray[np.intp]) -> PhaseTable:
        """Keep some rows, in the order given."""
        return replace(
            self,
            **{
                name: getattr(self, name)[rows]
                for name in ("picks", "blocks", "sum_s", "max_s", "host", "host_per_gpu", "peak", "left")
            },
        )


def phase_table(
    pools: Sequence[Sequence[PoolOption]],
    coupling: Coupling,
    gpus: int,
    full_node_gpus: Mapping[str, int],
    *,
    between_phases: MemoryMode | None = None,
    pool_by_pool: bool = False,
    least_gpus: int = 0,
) -> PhaseTable:
    """List the phases worth considering, one option for each pool, on at most `gpus` GPUs.

    A phase is dropped only when another fits wherever it fits, takes no more host memory (and,
    between phases, no more GPU memory) and is no slower whatever further pools are put beside it:
    while pools are still to come both sum and maximum matter. `pool_by_pool` compares blocks and
    host memory of each pool, for when it matters which pool goes where. Up to `least_gpus`, which
    the task must have, more GPUs count as a gain.
    """
    kinds = tuple(
        sorted({(option.pool.gpu_class, option.pool.block_gpus) for options in pools for option in options})
    )
    table = _of_pool(pools[0], kinds, between_phases)
    for options in pools[1:]:
        table = _beside(table, _of_pool(options, kinds, between_phases), gpus)
        needs = _pool_by_pool(table) if pool_by_pool else _together(table, full_node_gpus, between_phases)
        more = -np.minimum(table.gpus, least_gpus)
        table = table.keep(undominated(np.column_stack([needs, *_times(table, coupling), more])))
    return table.keep(np.flatnonzero(table.gpus <= gpus))


def at_least(blocks: Ints, kinds: Sequence[Kind], full_node_gpus: Mapping[str, int]) -> Ints:
    """Turn block counts into what dominance compares, shape (rows, kinds).

    For sizes that divide each other: GPUs in blocks of at least each size, since fewer of them fit
    wherever more do. Otherwise the counts themselves. GPU classes are counted apart.
    """
    parts = []
    for name in dict.fromkeys(name for name, _ in kinds):
        mine = [number for number, (owner, _) in enumerate(kinds) if owner == name]
        sizes = [kinds[number][1] for number in mine]
        part = blocks[:, mine]
        if are_nested(sizes, full_node_gpus[name]):
            part = (part * np.array(sizes, dtype=np.int64))[:, ::-1].cumsum(axis=1)[:, ::-1]
        parts.append(part)
    return np.concatenate(parts, axis=1)


def _of_pool(
    options: Sequence[PoolOption], kinds: tuple[Kind, ...], between_phases: MemoryMode | None
) -> PhaseTable:
    blocks = np.zeros((len(options), len(kinds)), dtype=np.int64)
    for row, option in enumerate(options):
        blocks[row, kinds.index((option.pool.gpu_class, option.pool.block_gpus))] = option.pool.blocks
    mode = between_phases or MemoryMode.RESIDENT

    def numbers(values: Sequence[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    times = numbers([option.time_s for option in options])
    return PhaseTable(
        (options,),
        kinds,
        np.arange(len(options), dtype=np.int64)[:, None],
        blocks,
        times,
        times,
        numbers([option.pool.host_memory_mib_per_gpu * option.pool.gpus for option in options]),
        numbers([option.pool.host_memory_mib_per_gpu for option in options]),
        numbers([option.pool.peak_mib for option in options]),
        numbers([option.left_behind_mib(mode) for option in options]),
    )


def _beside(a: PhaseTable, b: PhaseTable, gpus: int) -> PhaseTable:
    """Put every pool of `b` beside every phase of `a` that leaves room for it."""
    fits = a.gpus[:, None] + b.gpus[None, :] <= gpus
    i, j = np.nonzero(fits)
    return PhaseTable(
        (*a.options, *b.options),
        a.kinds,
        np.concatenate((a.picks[i], b.picks[j]), axis=1),
        a.blocks[i] + b.blocks[j],
        a.sum_s[i] + b.sum_s[j],
        np.maximum(a.max_s[i], b.max_s[j]),
        a.host[i] + b.host[j],
        np.maximum(a.host_per_gpu[i], b.host_per_gpu[j]),
        np.maximum(a.peak[i], b.peak[j]),
        np.maximum(a.left[i], b.left[j]),
    )


def _times(table: PhaseTable, coupling: Coupling) -> list[Floats]:
    return {
        CouplingKind.SYNC: [table.sum_s],
        CouplingKind.ASYNC: [table.max_s],
        CouplingKind.PIPELINED: [table.sum_s, table.max_s],
    }[coupling.kind]


def _together(
    table: PhaseTable, full_node_gpus: Mapping[str, int], between_phases: MemoryMode | None
) -> Floats:
    """Measure what a phase needs as a whole; between phases its largest block must stay, too."""
    needs = list(at_least(table.blocks, table.kinds, full_node_gpus).T.astype(np.float64))
    others = [table.host]
    if between_phases is not None:
        others += [table.host_per_gpu, table.peak, table.left]
        largest = np.where(table.blocks > 0, np.arange(len(table.kinds)), 0).max(axis=1, initial=0)
        needs += [largest, -largest]
    return np.column_stack([*needs, *(each for each in others if _says_more(each, table.gpus))])


def _pool_by_pool(table: PhaseTable) -> Floats:
    """Measure each pool's blocks and host memory; pools with pinned GPUs keep blocks and splitting."""
    columns: list[Floats] = []
    for options, picks in zip(table.options, table.picks.T, strict=True):
        counts = _of_pool(options, table.kinds, None).blocks.astype(np.float64)[picks]
        columns += list(counts.T)
        columns.append(np.array([option.pool.host_memory_mib_per_gpu for option in options])[picks])
        if options and options[0].splitting:
            columns += list(-counts.T)
            columns += list(np.array([option.splitting for option in options])[picks].T)
    return np.column_stack(columns)


def _says_more(measure: Floats, gpus: Ints) -> bool:
    """Tell whether a measure is not already settled by the number of GPUs (constant, or so much each)."""
    return len(measure) > 0 and bool(np.ptp(measure) > 0 and np.ptp(measure / gpus) > 1e-9 * measure.max())

"""Phases: pools that run at once, with their times combined as the coupling says.

With pool times t_i: sync Σt_i; pipelined over m groups Σt_i/m + (1 − 1/m)·max t_i (RLinf's disaggregated
cost; sync is m = 1). Async is paced by the slowest pool, max t_i, or by its bound on staleness η: of batches
(1 + η) may be on their way through all pools, so that a step takes Σt_i/(1 + η) at least; a rollout that
never drains has the bound of `models/rollout/streaming.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.rollout.streaming import Stream, least_step_s
from libra_plan.planner.configurations.packing import are_nested
from libra_plan.planner.configurations.pareto import undominated
from libra_plan.planner.configurations.pools import PoolOption
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Coupling, CouplingKind

__all__ = ["Kind", "PhaseTable", "at_least", "coupled_time_s", "phase_table"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Kind = tuple[str, int]
"""GPU class and size of blocks."""
_SHARED = ("options", "kinds")
"""Part of a table that all its rows share."""


def coupled_time_s(pools: Sequence[tuple[float, Stream | None]], coupling: Coupling) -> float:
    """Return the time of a phase from the seconds of its pools, and what those that stream are made of."""
    times = [seconds for seconds, _ in pools]
    sum_s, max_s = sum(times), max(times)
    if coupling.kind is CouplingKind.SYNC:
        return sum_s
    if coupling.kind is CouplingKind.ASYNC:
        rest_s = sum(seconds for seconds, stream in pools if stream is None)
        streams = [stream for _, stream in pools if stream is not None]
        if not streams:
            return max(max_s, rest_s / (1 + coupling.staleness))
        work_s, latency_s = max(each.work_s for each in streams), max(each.latency_s for each in streams)
        return max(max_s, float(least_step_s(work_s, latency_s, rest_s, coupling.staleness)))
    groups = coupling.groups or 1
    return sum_s / groups + (1.0 - 1.0 / groups) * max_s


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """Phases of one shape, a row each.

    `picks[row, pool]` is the number of the pool's option; `blocks[row, kind]` counts blocks of
    `kinds`, (GPU class, size) each. Times in seconds: the sum and the largest over pools; `rest_s` the sum
    of those that do not stream, `work_s` and `latency_s` the most of those that do (0: none does). Memory in
    MiB: `host` of all pools, `host_per_gpu`, `peak` and `left` (behind, for other phases) the most
    of any.
    """

    options: tuple[Sequence[PoolOption], ...]
    kinds: tuple[Kind, ...]
    picks: Ints
    blocks: Ints
    sum_s: Floats
    max_s: Floats
    rest_s: Floats
    work_s: Floats
    latency_s: Floats
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
        """Return the time of each phase, seconds."""
        if coupling.kind is CouplingKind.SYNC:
            return self.sum_s
        if coupling.kind is CouplingKind.ASYNC:
            batched = self.rest_s / (1 + coupling.staleness)
            streamed = least_step_s(self.work_s, self.latency_s, self.rest_s, coupling.staleness)
            paced: Floats = np.where(self.work_s + self.latency_s > 0.0, streamed, batched)
            return np.maximum(self.max_s, paced)
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
                each.name: getattr(self, each.name)[rows] for each in fields(self) if each.name not in _SHARED
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
        last = options is pools[-1]
        table = _beside(table, _of_pool(options, kinds, between_phases), gpus)
        needs = _pool_by_pool(table) if pool_by_pool else _together(table, full_node_gpus, between_phases)
        more = -np.minimum(table.gpus, least_gpus)
        table = table.keep(undominated(np.column_stack([needs, *_times(table, coupling, last), more])))
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
        np.where([option.stream is None for option in options], times, 0.0),
        numbers([0.0 if option.stream is None else option.stream.work_s for option in options]),
        numbers([0.0 if option.stream is None else option.stream.latency_s for option in options]),
        numbers([option.pool.host_memory_mib_per_gpu * option.pool.gpus for option in options]),
        numbers([option.pool.host_memory_mib_per_gpu for option in options]),
        numbers([option.pool.peak_mib for option in options]),
        numbers([option.left_behind_mib(mode) for option in options]),
    )


def _beside(a: PhaseTable, b: PhaseTable, gpus: int) -> PhaseTable:
    """Add every pool of `b` to every phase of `a` that leaves enough GPUs for it."""
    fits = a.gpus[:, None] + b.gpus[None, :] <= gpus
    i, j = np.nonzero(fits)
    return PhaseTable(
        (*a.options, *b.options),
        a.kinds,
        np.concatenate((a.picks[i], b.picks[j]), axis=1),
        a.blocks[i] + b.blocks[j],
        a.sum_s[i] + b.sum_s[j],
        np.maximum(a.max_s[i], b.max_s[j]),
        a.rest_s[i] + b.rest_s[j],
        np.maximum(a.work_s[i], b.work_s[j]),
        np.maximum(a.latency_s[i], b.latency_s[j]),
        a.host[i] + b.host[j],
        np.maximum(a.host_per_gpu[i], b.host_per_gpu[j]),
        np.maximum(a.peak[i], b.peak[j]),
        np.maximum(a.left[i], b.left[j]),
    )


def _times(table: PhaseTable, coupling: Coupling, last: bool) -> list[Floats]:
    """Measure times: with pools still to come all that their step is made of, then the step itself."""
    if coupling.kind is CouplingKind.SYNC:
        return [table.sum_s]
    if coupling.kind is CouplingKind.PIPELINED:
        return [table.sum_s, table.max_s]
    if last:
        return [table.time_s(coupling)]
    parts = [table.max_s, table.rest_s, table.work_s, table.latency_s]
    return parts if table.latency_s.any() or table.work_s.any() else parts[:2]


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
    configurations: list[Floats] = []
    for options, picks in zip(table.options, table.picks.T, strict=True):
        counts = _of_pool(options, table.kinds, None).blocks.astype(np.float64)[picks]
        configurations += list(counts.T)
        configurations.append(np.array([option.pool.host_memory_mib_per_gpu for option in options])[picks])
        if options and options[0].splitting:
            configurations += list(-counts.T)
            configurations += list(np.array([option.splitting for option in options])[picks].T)
    return np.column_stack(configurations)


def _says_more(measure: Floats, gpus: Ints) -> bool:
    """Return whether a measure is not already settled by the number of GPUs (constant, or so much each)."""
    return len(measure) > 0 and bool(np.ptp(measure) > 0 and np.ptp(measure / gpus) > 1e-9 * measure.max())

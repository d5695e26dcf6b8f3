"""Phases: pools that run at once, with their times combined as the coupling says.

With pool times t_i: sync Σt_i; pipelined over m groups Σt_i/m + (1 − 1/m)·max t_i (RLinf's disaggregated
cost; sync is m = 1). Async is paced by the slowest pool, max t_i, or by its bound on staleness η: of batches
(1 + η) may be on their way through all pools, so that a step takes Σt_i/(1 + η) at least; a rollout that
never drains has the bound of `models/rollout/streaming.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.rollout.streaming import Stream, least_step_s
from libra_plan.planner.configurations.joint import JointTask, step_s, works_s
from libra_plan.planner.configurations.packing import are_nested
from libra_plan.planner.configurations.pareto import pareto_front
from libra_plan.planner.configurations.pools import Kind, PoolOption, PoolTable
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Coupling, CouplingKind, Task

__all__ = ["PhaseTable", "at_least", "coupled_time_s", "phase_table"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_ADDED = ("sum_s", "rest_s", "host", "cores")
"""Seconds of all pools and of those that do not stream, host MiB and CPU cores of all GPUs."""
_MOST = (
    "max_s",
    "work_s",
    "latency_s",
    "peak",
    "left",
    "host_per_gpu",
    "host_per_gpu_least",
    "cores_per_gpu",
    "cores_per_gpu_least",
)
"""Seconds, the parts of pools that stream, MiB per GPU (`left` behind, for other phases) and cores per GPU;
the least ones with a minus."""


def coupled_time_s(pools: Sequence[tuple[float, Stream | None]], coupling: Coupling) -> float:
    """Return the seconds of a phase from those of its pools, and what those that stream are made of."""
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

    `picks[row, pool]` is the row of the pool in its table; `blocks[row, kind]` counts blocks of `kinds`, (GPU
    class, size) each. `added` are figures that add up over pools, `most` those whose largest counts, in the
    order of `_ADDED` and `_MOST`; after `_ADDED` come the works of tasks that run jointly.
    """

    pools: tuple[PoolTable, ...]
    kinds: tuple[Kind, ...]
    picks: Ints
    blocks: Ints
    added: Floats
    most: Floats

    def __len__(self) -> int:
        return len(self.picks)

    def __getitem__(self, name: str) -> Floats:
        """Return one figure, by row."""
        return self.added[:, _ADDED.index(name)] if name in _ADDED else self.most[:, _MOST.index(name)]

    @property
    def gpus(self) -> Ints:
        """Return the number of GPUs, by row."""
        return self.blocks @ np.array([size for _, size in self.kinds], dtype=np.int64)

    @property
    def even(self) -> NDArray[np.bool_]:
        """Whether each GPU takes as many cores and as much host memory as any other, by row."""
        alike = (self["host_per_gpu"] == -self["host_per_gpu_least"]) & (
            self["cores_per_gpu"] == -self["cores_per_gpu_least"]
        )
        return np.asarray(alike)

    def time_s(self, task: Task) -> Floats:
        """Return the seconds of each phase, without hand-overs unless tasks run jointly."""
        coupling = task.coupling
        if isinstance(task, JointTask):
            return step_s(task, self.added[:, len(_ADDED) :])
        if coupling.kind is CouplingKind.SYNC:
            return self["sum_s"]
        if coupling.kind is CouplingKind.ASYNC:
            work_s, latency_s, rest_s = self["work_s"], self["latency_s"], self["rest_s"]
            batched = rest_s / (1 + coupling.staleness)
            streamed = least_step_s(work_s, latency_s, rest_s, coupling.staleness)
            paced: Floats = np.where(work_s + latency_s > 0.0, streamed, batched)
            return np.maximum(self["max_s"], paced)
        groups = coupling.groups or 1
        return self["sum_s"] / groups + (1.0 - 1.0 / groups) * self["max_s"]

    def options(self, row: int) -> tuple[PoolOption, ...]:
        """Build the pools of a row."""
        return tuple(pool.option(int(pick)) for pool, pick in zip(self.pools, self.picks[row], strict=True))

    def keep(self, rows: NDArray[np.intp]) -> PhaseTable:
        """Keep some rows, in the order given."""
        parts = self.picks[rows], self.blocks[rows]
        return PhaseTable(self.pools, self.kinds, *parts, self.added[rows], self.most[rows])


def phase_table(
    pools: Sequence[PoolTable],
    task: Task,
    gpus: int,
    full_node_gpus: Mapping[str, int],
    *,
    between_phases: MemoryMode | None = None,
    pool_by_pool: bool = False,
) -> PhaseTable:
    """List the phases worth considering, one option for each pool, on at most `gpus` GPUs.

    A phase is dropped only when another fits wherever it fits, takes no more host memory (and,
    between phases, no more GPU memory) and is no slower whatever further pools are put beside it:
    while pools are still to come both sum and maximum matter. `pool_by_pool` compares blocks and
    host memory of each pool, for when it matters which pool goes where. Up to the GPUs that the task must
    have, more of them count as a gain.
    """
    kinds = tuple(sorted({pool.kinds[kind] for pool in pools for kind in set(pool.rows["kind"].tolist())}))
    tables = [_of_pool(pool, number, kinds, task, between_phases) for number, pool in enumerate(pools)]
    table = tables[0]
    for number, beside in enumerate(tables[1:], start=2):
        table = _beside(table, beside, gpus)
        needs = _pool_by_pool(table) if pool_by_pool else _together(table, full_node_gpus, between_phases)
        more = -np.minimum(table.gpus, task.min_gpus)
        times = _times(table, task, last=number == len(tables))
        table = table.keep(pareto_front(np.column_stack([needs, more, *times])))
    return table.keep(np.flatnonzero(table.gpus <= gpus))


def at_least(blocks: Ints, kinds: Sequence[Kind], full_node_gpus: Mapping[str, int]) -> Ints:
    """Turn block counts into what dominance compares, shape (rows, kinds).

    For sizes that divide each other: GPUs in blocks of at least each size, since fewer of them fit
    wherever more do. Otherwise the counts themselves. GPU classes are counted apart.
    """
    parts = [blocks[:, :0]]
    for name in dict.fromkeys(name for name, _ in kinds):
        mine = [number for number, (owner, _) in enumerate(kinds) if owner == name]
        sizes = [kinds[number][1] for number in mine]
        part = blocks[:, mine]
        if are_nested(sizes, full_node_gpus[name]):
            part = (part * np.array(sizes, dtype=np.int64))[:, ::-1].cumsum(axis=1)[:, ::-1]
        parts.append(part)
    return np.concatenate(parts, axis=1)


def _of_pool(
    pool: PoolTable, number: int, kinds: tuple[Kind, ...], task: Task, between_phases: MemoryMode | None
) -> PhaseTable:
    rows, cores = pool.rows, pool.cores_per_gpu
    seconds, host = rows["time_s"], rows["host_per_gpu"]
    left = rows["asleep" if between_phases is MemoryMode.SLEEP else "static"]
    added = [seconds, np.where(rows["streams"], 0.0, seconds), host * rows["gpus"], cores * rows["gpus"]]
    if isinstance(task, JointTask):
        added += list(works_s(task, number, pool).T)
    each_cores = np.full(len(rows), cores)
    most = [
        seconds,
        rows["work_s"],
        rows["latency_s"],
        rows["peak"],
        left,
        host,
        -host,
        each_cores,
        -each_cores,
    ]
    return PhaseTable(
        (pool,),
        kinds,
        np.arange(len(rows), dtype=np.int64)[:, None],
        _blocks(pool, kinds),
        np.column_stack(added),
        np.column_stack(most),
    )


def _blocks(pool: PoolTable, kinds: Sequence[Kind]) -> Ints:
    """Count the blocks of each pool by kind."""
    at = np.array([kinds.index(kind) if kind in kinds else -1 for kind in pool.kinds], dtype=np.int64)
    same = at[pool.rows["kind"]][:, None] == np.arange(len(kinds))
    return np.where(same, pool.rows["blocks"][:, None], 0)


def _beside(a: PhaseTable, b: PhaseTable, gpus: int) -> PhaseTable:
    """Put every pool of `b` beside every phase of `a` that leaves room for it."""
    i, j = np.nonzero(a.gpus[:, None] + b.gpus[None, :] <= gpus)
    return PhaseTable(
        (*a.pools, *b.pools),
        a.kinds,
        np.concatenate((a.picks[i], b.picks[j]), axis=1),
        a.blocks[i] + b.blocks[j],
        a.added[i] + b.added[j],
        np.maximum(a.most[i], b.most[j]),
    )


def _times(table: PhaseTable, task: Task, *, last: bool) -> list[Floats]:
    """Measure times: with pools still to come all that their step is made of, then the step itself."""
    if isinstance(task, JointTask) and not last:
        return list(table.added[:, len(_ADDED) :].T)
    if last or task.coupling.kind is CouplingKind.SYNC:
        return [table.time_s(task)]
    if task.coupling.kind is CouplingKind.PIPELINED:
        return [table["sum_s"], table["max_s"]]
    return [table[name] for name in ("max_s", "rest_s", "work_s", "latency_s")]


def _together(
    table: PhaseTable, full_node_gpus: Mapping[str, int], between_phases: MemoryMode | None
) -> Floats:
    """Measure what a phase needs as a whole; between phases its largest block must stay, too."""
    needs = list(at_least(table.blocks, table.kinds, full_node_gpus).T)
    others = [table["host"]]
    if between_phases is not None:
        others += [table["host_per_gpu"], table["peak"], table["left"]]
        largest = np.where(table.blocks > 0, np.arange(len(table.kinds)), 0).max(axis=1, initial=0)
        needs += [largest, -largest]
    return np.column_stack([*needs, *(each for each in others if _says_more(each, table.gpus))])


def _pool_by_pool(table: PhaseTable) -> Floats:
    """Measure each pool's blocks and host memory; pools with pinned GPUs keep blocks and splitting."""
    measures = []
    for pool, picks in zip(table.pools, table.picks.T, strict=True):
        counts = _blocks(pool, table.kinds)[picks]
        measures += [counts, pool.rows["host_per_gpu"][picks, None], pool.splitting[picks]]
        if pool.splitting.shape[1]:
            measures.append(-counts)
    return np.concatenate(measures, axis=1)


def _says_more(measure: Floats, gpus: Ints) -> bool:
    """Whether a measure is not already settled by the number of GPUs (constant, or so much each)."""
    return len(measure) > 0 and bool(np.ptp(measure) > 0 and np.ptp(measure / gpus) > 1e-9 * measure.max())

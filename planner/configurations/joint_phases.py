"""Combine the pools of tasks that run jointly, without dominated combinations.

As for one task, but the step of members is no sum or maximum over pools: what each pool adds to each
of its works is carried along, and a choice of pools is dropped only when another beats it in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.configurations.joint import JointTask, step_s, works_s
from libra_plan.planner.configurations.pareto import undominated
from libra_plan.planner.configurations.phases import Kind, at_least
from libra_plan.planner.configurations.pools import PoolOption

__all__ = ["joint_phases"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def joint_phases(
    joint: JointTask,
    options: Sequence[Sequence[PoolOption]],
    gpus: int,
    full_node_gpus: Mapping[str, int],
    *,
    pool_by_pool: bool,
) -> Iterator[tuple[tuple[PoolOption, ...], tuple[tuple[str, int, int], ...], float]]:
    """Return the pools, blocks and step (seconds) worth considering, on at most `gpus` GPUs.

    `pool_by_pool` compares blocks and host memory of each pool, for when it matters which goes where.
    """
    kinds: tuple[Kind, ...] = tuple(sorted({_kind(option) for each in options for option in each}))
    sizes = np.array([size for _, size in kinds], dtype=np.int64)
    picks = np.zeros((1, 0), dtype=np.int64)
    blocks = np.zeros((1, len(kinds)), dtype=np.int64)
    works = np.zeros((1, len(works_s(joint, 0, options[0][0], lambda time: time.value))))
    measures = np.zeros((1, 0 if pool_by_pool else 1))
    for number, pool in enumerate(options):
        own_blocks, own_works = _blocks(pool, kinds), _works(joint, number, pool)
        own: Floats = _host(pool)[:, None]
        if pool_by_pool:
            own = np.column_stack((own_blocks.astype(np.float64), own))
        i, j = np.nonzero((blocks @ sizes)[:, None] + (own_blocks @ sizes)[None, :] <= gpus)
        picks = np.concatenate((picks[i], j[:, None]), axis=1)
        blocks = blocks[i] + own_blocks[j]
        works = works[i] + own_works[j]
        measures = np.hstack((measures[i], own[j])) if pool_by_pool else measures[i] + own[j]
        times = step_s(joint, works)[:, None] if number == len(options) - 1 else works
        needs = [] if pool_by_pool else [at_least(blocks, kinds, full_node_gpus)]
        kept = undominated(np.column_stack([*needs, measures, times]).astype(np.float64))
        picks, blocks, works, measures = picks[kept], blocks[kept], works[kept], measures[kept]
    seconds = step_s(joint, works)
    for row in range(len(picks)):
        pools = tuple(each[pick] for each, pick in zip(options, picks[row], strict=True))
        numbers = zip(kinds, blocks[row], strict=True)
        yield pools, tuple((name, size, int(n)) for (name, size), n in numbers if n), float(seconds[row])


def _kind(option: PoolOption) -> Kind:
    return option.pool.gpu_class, option.pool.block_gpus


def _blocks(pool: Sequence[PoolOption], kinds: Sequence[Kind]) -> Ints:
    found = np.zeros((len(pool), len(kinds)), dtype=np.int64)
    for row, option in enumerate(pool):
        found[row, kinds.index(_kind(option))] = option.pool.blocks
    return found


def _works(joint: JointTask, number: int, pool: Sequence[PoolOption]) -> Floats:
    return np.array([works_s(joint, number, option, lambda time: time.value) for option in pool])


def _host(pool: Sequence[PoolOption]) -> Floats:
    """Return the host memory of every option, MiB over all its GPUs."""
    return np.array([option.pool.host_memory_mib_per_gpu * option.pool.gpus for option in pool])

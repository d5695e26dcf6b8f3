"""What a column asks of a cluster: blocks, CPU cores and host memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from libra_plan.planner.plan import Column

__all__ = ["BlockNeed", "block_needs", "fits_where", "gpus_in_blocks", "host_needs"]


@dataclass(frozen=True, slots=True)
class BlockNeed:
    """Equal blocks a column asks for, with what each GPU in them takes from its node."""

    gpu_class: str
    block_gpus: int
    blocks: int
    cpu_cores_per_gpu: float
    host_memory_mib_per_gpu: float
    pool: int | None
    """Number of the pool in the only phase; None when phases share the blocks."""


def block_needs(column: Column) -> tuple[BlockNeed, ...]:
    """List a column's blocks as placement sees them; phases on the same GPUs add their host needs."""
    if len(column.phases) == 1:
        return tuple(
            BlockNeed(
                pool.gpu_class,
                pool.block_gpus,
                pool.blocks,
                pool.cpu_cores_per_gpu,
                pool.host_memory_mib_per_gpu,
                number,
            )
            for number, pool in enumerate(column.phases[0].pools)
        )
    cores = sum(max(pool.cpu_cores_per_gpu for pool in phase.pools) for phase in column.phases)
    host = sum(max(pool.host_memory_mib_per_gpu for pool in phase.pools) for phase in column.phases)
    return tuple(BlockNeed(name, size, n, cores, host, None) for name, size, n in column.blocks)


def host_needs(column: Column) -> tuple[float, float]:
    """Give the CPU cores and host MiB that the column's GPUs take, over the whole column."""
    needs = block_needs(column)
    return (
        sum(need.cpu_cores_per_gpu * need.block_gpus * need.blocks for need in needs),
        sum(need.host_memory_mib_per_gpu * need.block_gpus * need.blocks for need in needs),
    )


def gpus_in_blocks(column: Column, gpu_class: str, at_least: int) -> int:
    """Count GPUs the column needs in blocks of at least one size; odd rests do not count.

    Floors make the count a valid demand on Σ⌊free/at_least⌋·at_least for sizes that do not nest.
    """
    return at_least * sum(
        size // at_least * number for name, size, number in column.blocks if name == gpu_class
    )


def fits_where(less: Column, more: Column) -> bool:
    """Tell whether one column's blocks surely fit wherever the other's do.

    For sizes that divide each other, fewer GPUs in blocks of at least every size is enough;
    otherwise fewer blocks of every single size.
    """
    sizes = sorted({(name, size) for name, size, _ in less.blocks + more.blocks})
    nested = all(b % a == 0 for (m, a), (n, b) in pairwise(sizes) if m == n)
    if nested:
        return all(
            gpus_in_blocks(less, name, size) <= gpus_in_blocks(more, name, size) for name, size in sizes
        )
    mine, theirs = ({block[:2]: block[2] for block in each.blocks} for each in (less, more))
    return all(number <= theirs.get(at, 0) for at, number in mine.items())

"""The needs of a configuration: blocks, CPU cores and host memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from libra_plan.planner.configurations.capacity import replicas_per_block
from libra_plan.planner.configurations.packing import are_nested
from libra_plan.planner.plan import Configuration

__all__ = [
    "BlockNeed",
    "block_needs",
    "fits_where",
    "gpus_at_least",
    "gpus_needed_in_blocks",
    "host_needs",
    "takes_no_more",
]


@dataclass(frozen=True, slots=True)
class BlockNeed:
    """Equal blocks that a configuration needs, with the host resources that each of their GPUs takes."""

    gpu_class: str
    block_gpus: int
    blocks: int
    cpu_cores_per_gpu: float
    host_memory_mib_per_gpu: float
    pool: int | None
    """Number of the pool in the only phase; None when phases share the blocks."""


def block_needs(configuration: Configuration) -> tuple[BlockNeed, ...]:
    """List a configuration's blocks as placement sees them; phases on the same GPUs add their host needs."""
    if len(configuration.phases) == 1:
        return tuple(
            BlockNeed(
                pool.gpu_class,
                pool.block_gpus,
                pool.blocks,
                pool.cpu_cores_per_gpu,
                pool.host_memory_mib_per_gpu,
                number,
            )
            for number, pool in enumerate(configuration.phases[0].pools)
        )
    cores = sum(max(pool.cpu_cores_per_gpu for pool in phase.pools) for phase in configuration.phases)
    host = sum(max(pool.host_memory_mib_per_gpu for pool in phase.pools) for phase in configuration.phases)
    return tuple(BlockNeed(name, size, n, cores, host, None) for name, size, n in configuration.blocks)


def host_needs(configuration: Configuration) -> tuple[float, float]:
    """Return the CPU cores and host MiB that the configuration's GPUs take, over the whole configuration."""
    needs = block_needs(configuration)
    return (
        sum(need.cpu_cores_per_gpu * need.block_gpus * need.blocks for need in needs),
        sum(need.host_memory_mib_per_gpu * need.block_gpus * need.blocks for need in needs),
    )


def gpus_needed_in_blocks(
    configuration: Configuration, gpu_class: str, at_least: int, full_node_gpus: int
) -> int:
    """Count GPUs the configuration needs in blocks of at least one size; odd rests do not count.

    The count is a valid demand on all the blocks of that size there are, for sizes that do not
    nest and blocks of whole nodes too: it is what fits in the configuration's blocks.
    """
    return gpus_at_least(configuration.blocks, gpu_class, at_least, full_node_gpus)


def gpus_at_least(
    blocks: Iterable[tuple[str, int, int]], gpu_class: str, at_least: int, full_node_gpus: int
) -> int:
    """Count the same for blocks that belong to no configuration yet."""
    return at_least * sum(
        replicas_per_block(size, at_least, full_node_gpus) * number
        for name, size, number in blocks
        if name == gpu_class and size >= at_least
    )


def fits_where(less: Configuration, more: Configuration, full_node_gpus: Mapping[str, int]) -> bool:
    """Return whether one configuration's blocks surely fit wherever the other's do.

    For sizes that divide each other, fewer GPUs in blocks of at least every size is enough;
    otherwise fewer blocks of every single size.
    """
    mine, theirs = ({block[:2]: block[2] for block in each.blocks} for each in (less, more))
    for name in {name for name, _ in mine}:
        sizes = sorted({size for owner, size in mine.keys() | theirs.keys() if owner == name})
        if not are_nested(sizes, full_node_gpus[name]):
            if any(mine.get((name, size), 0) > theirs.get((name, size), 0) for size in sizes):
                return False
            continue
        gpus = [size * (theirs.get((name, size), 0) - mine.get((name, size), 0)) for size in sizes]
        if any(sum(gpus[at:]) < 0 for at in range(len(sizes))):
            return False
    return True


def takes_no_more(less: Configuration, more: Configuration) -> bool:
    """Return whether no GPU of one configuration takes more cores or host memory than any of the other."""
    mine, theirs = block_needs(less), block_needs(more)
    return max(need.cpu_cores_per_gpu for need in mine) <= min(
        need.cpu_cores_per_gpu for need in theirs
    ) and max(need.host_memory_mib_per_gpu for need in mine) <= min(
        need.host_memory_mib_per_gpu for need in theirs
    )

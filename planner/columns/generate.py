"""Columns of one task: every shape, every pool, merged and freed of what is beaten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from libra_plan.models.quantities import Estimate, exactly, total
from libra_plan.models.topology import Cluster
from libra_plan.planner.columns.arrangements import Shape, shapes_of
from libra_plan.planner.columns.capacity import ClassCapacity, capacities
from libra_plan.planner.columns.phases import PhaseOption, coupled_time_s, phase_options
from libra_plan.planner.columns.pools import PoolOption, pool_options
from libra_plan.planner.columns.shared import blocks_needed, shared_phases
from libra_plan.planner.plan import Column, MemoryMode, Phase
from libra_plan.planner.problem import Task

__all__ = ["BlockNeed", "ColumnSet", "block_needs", "columns_of", "gpus_in_blocks", "host_needs"]


@dataclass(frozen=True, slots=True)
class ColumnSet:
    """The columns of a task, fastest first, and how many were beaten and dropped."""

    task: str
    columns: tuple[Column, ...]
    dropped: int


def columns_of(task: Task, cluster: Cluster) -> ColumnSet:
    """Generate every column of a task that no other one beats.

    A column is dropped when another is as fast, fits wherever it fits, and needs no more CPU cores
    and host memory. Tasks with pinned or excluded GPUs keep the best of every shape, since where a
    pool may go then differs from shape to shape.
    """
    by_id = any(role.pinned_gpus or role.excluded_gpus for role in task.gpu_roles)
    kept: list[Column] = []
    made = 0
    for capacity in capacities(cluster).values():
        for shape in shapes_of(task):
            if by_id and len(shape) > 1:
                continue  # pools of two phases overlap; pins are kept within one phase
            columns = list(_columns_of_shape(task, shape, capacity))
            made += len(columns)
            kept.extend(_undominated(columns) if by_id else columns)
    if not by_id:
        kept = _undominated(kept)
    kept.sort(key=lambda column: (column.step_time_s.value, column.gpus, column.blocks))
    return ColumnSet(task.id, tuple(kept), made - len(kept))


def _columns_of_shape(task: Task, shape: Shape, capacity: ClassCapacity) -> Iterator[Column]:
    most = capacity.gpus if task.max_gpus is None else min(task.max_gpus, capacity.gpus)
    for phases in _phase_choices(task, shape, capacity, most):
        blocks = _blocks(phases, capacity)
        gpus = sum(size * number for _, size, number in blocks)
        if task.min_gpus <= gpus <= most and all(capacity.rooms(size) >= n for _, size, n in blocks):
            yield _column(task, phases, blocks)


def _phase_choices(
    task: Task, shape: Shape, capacity: ClassCapacity, gpus: int
) -> Iterator[tuple[PhaseOption, ...]]:
    def options(pools: tuple[tuple[int, ...], ...], mode: MemoryMode | None) -> list[PhaseOption]:
        roles = [[task.gpu_roles[number] for number in pool] for pool in pools]
        each = [
            pool_options(members, capacity, between_phases=mode, fill=task.roles_fill_pools)
            for members in roles
        ]
        return phase_options(each, task.coupling, gpus, mode)

    if len(shape) == 1:
        yield from ((phase,) for phase in options(shape[0], None))
        return
    for mode in MemoryMode:
        yield from shared_phases([options(pools, mode) for pools in shape], mode, task.coupling, capacity)


def _blocks(phases: tuple[PhaseOption, ...], capacity: ClassCapacity) -> tuple[tuple[str, int, int], ...]:
    """Give the column's blocks: the phase's own, or for several phases all of the largest size."""
    if len(phases) == 1:
        return tuple((capacity.gpu_class, size, number) for size, number in phases[0].blocks)
    largest = max(size for phase in phases for size, _ in phase.blocks)
    number = max(blocks_needed(phase, largest, capacity) or 0 for phase in phases)
    return ((capacity.gpu_class, largest, number),)


def _column(task: Task, phases: tuple[PhaseOption, ...], blocks: tuple[tuple[str, int, int], ...]) -> Column:
    pools = [each.pool for phase in phases for each in phase.pools]
    handover_s = task.sync_s if len(pools) > 1 else 0.0
    parts = total((choice.option.time_s for pool in pools for choice in pool.choices), "s")
    if handover_s or any(each.switching_s for phase in phases for each in phase.pools):
        parts = parts.plus(exactly(0.0, "s"))  # switches are priced, not measured: weakest origin

    def step(read: Callable[[Estimate], float]) -> float:
        times = [[_pool_time(each, read) for each in phase.pools] for phase in phases]
        return handover_s + sum(coupled_time_s(sum(pool), max(pool), task.coupling) for pool in times)

    return Column(
        task=task.id,
        phases=tuple(Phase(tuple(each.pool for each in phase.pools)) for phase in phases),
        step_time_s=Estimate(
            step(lambda time: time.value),
            step(lambda time: time.low),
            step(lambda time: time.high),
            "s",
            parts.origin,
            parts.rows,
        ),
        blocks=blocks,
        peak_mib=max(pool.peak_mib for pool in pools),
    )


def _pool_time(option: PoolOption, read: Callable[[Estimate], float]) -> float:
    return sum(read(choice.option.time_s) for choice in option.pool.choices) + option.switching_s


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


def _undominated(columns: list[Column]) -> list[Column]:
    """Keep columns that no other covers; those with few GPUs first, so each meets few rivals."""
    kept: list[tuple[Column, tuple[float, float]]] = []
    for column in sorted(columns, key=lambda each: (each.gpus, each.step_time_s.value, each.blocks)):
        needs = host_needs(column)
        if not any(
            other.step_time_s.value <= column.step_time_s.value
            and theirs[0] <= needs[0]
            and theirs[1] <= needs[1]
            and fits_where(other, column)
            for other, theirs in kept
        ):
            kept.append((column, needs))
    return [column for column, _ in kept]


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

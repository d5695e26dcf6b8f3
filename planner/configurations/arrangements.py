"""The shapes a task may take: its roles partitioned into pools, its pools into phases."""

from __future__ import annotations

from collections.abc import Iterator

from libra_plan.planner.problem import Arrangement, CouplingKind, Task

__all__ = ["Shape", "arrangement_of_shape", "pool_splits", "task_shapes"]

Shape = tuple[tuple[tuple[int, ...], ...], ...]
"""Phases of pools of role numbers, e.g. (((0,), (1, 2)),): role 0 beside a pool of 1 and 2."""


def arrangement_of_shape(shape: Shape) -> Arrangement:
    """Name a shape: one pool, all roles apart in one phase, or anything between."""
    pools = [pool for phase in shape for pool in phase]
    if len(pools) == 1:
        return Arrangement.COLOCATED
    if len(shape) == 1 and all(len(pool) == 1 for pool in pools):
        return Arrangement.SEPARATE
    return Arrangement.HYBRID


def task_shapes(task: Task) -> list[Shape]:
    """List the shapes the task's framework allows.

    Phases are runs of consecutive roles in stage order; at least one phase of several has several
    pools, otherwise the shape would be the colocated one again. A task with a single GPU role has
    one shape, whatever it allows.
    """
    numbers = tuple(range(len(task.gpu_roles)))
    if len(numbers) <= 1:
        return [((numbers,),)] if numbers else []
    shapes: list[Shape] = []
    for cuts in _compositions(numbers):
        for shape in _products([pool_splits(run, task) for run in cuts]):
            if len(shape) > 1 and all(len(phase) == 1 for phase in shape):
                continue
            if arrangement_of_shape(shape) in task.arrangements:
                shapes.append(shape)
    return shapes


def pool_splits(roles: tuple[int, ...], task: Task) -> list[tuple[tuple[int, ...], ...]]:
    """List the ways to split roles into pools that work at once, as the coupling allows."""
    if task.coupling.kind is CouplingKind.PIPELINED:
        return [tuple(runs) for runs in _compositions(roles)]
    return list(_partitions(roles))


def _compositions(items: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """Cut a sequence into consecutive runs, in every way."""
    if not items:
        yield []
        return
    for length in range(len(items), 0, -1):
        for rest in _compositions(items[length:]):
            yield [items[:length], *rest]


def _partitions(items: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Partition a set into non-empty pools, each pool and the list of pools in order."""
    if not items:
        yield ()
        return
    first, rest = items[0], items[1:]
    for smaller in _partitions(rest):
        yield ((first,), *smaller)
        for at, pool in enumerate(smaller):
            yield tuple(sorted((*smaller[:at], (first, *pool), *smaller[at + 1 :])))


def _products(choices: list[list[tuple[tuple[int, ...], ...]]]) -> Iterator[Shape]:
    """Choose one partition for each phase, in every way."""
    if not choices:
        yield ()
        return
    for first in choices[0]:
        for rest in _products(choices[1:]):
            yield (first, *rest)

"""How blocks of one size hold smaller ones: how many are needed, and which goes where.

An outer block is GPUs of one node, or several whole nodes; no smaller block in it may be cut by a
node, unless it fills whole nodes itself. Sizes that divide each other pack without waste when the
largest go first. Other sizes are tried in every way, up to a number where that would take long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

__all__ = ["Spot", "are_nested", "blocks_around", "spots"]

Spot = tuple[int, tuple[int, ...]]
"""Number of an outer block, and of its nodes that are used."""

Bins = tuple[tuple[int, ...], ...]
"""GPUs still free, per node of each outer block."""

_TRIED = 24  # blocks that are packed by trying; more are packed largest first


def are_nested(sizes: Sequence[int], full_node_gpus: int) -> bool:
    """Return whether block sizes divide each other, and the node where some are larger than one."""
    chain = sorted({*sizes, full_node_gpus} if max(sizes, default=0) > full_node_gpus else set(sizes))
    return all(large % small == 0 for small, large in pairwise(chain))


@lru_cache(maxsize=100_000)
def blocks_around(blocks: tuple[tuple[int, int], ...], outer_gpus: int, full_node_gpus: int) -> int | None:
    """Count the blocks of `outer_gpus` that hold (size, number) smaller ones; None when one is too large."""
    sizes = [size for size, number in blocks if number]
    ragged = any(size > full_node_gpus and size % full_node_gpus for size in (*sizes, outer_gpus))
    if ragged or max(sizes, default=0) > outer_gpus:
        return None
    gpus = sum(size * number for size, number in blocks)
    number = max(1, -(-gpus // outer_gpus))
    if are_nested((*sizes, outer_gpus), full_node_gpus):
        return number
    items = tuple(sorted((size for size, count in blocks for _ in range(count)), reverse=True))
    while len(spots(items, outer_gpus, full_node_gpus, number)) < len(items):
        number += 1
    return number


def spots(items: Sequence[int], outer_gpus: int, full_node_gpus: int, outer: int) -> list[Spot]:
    """Return a spot in the outer blocks for each block, largest first; fewer spots when not all fit."""
    node = min(outer_gpus, full_node_gpus)
    bins: Bins = ((node,) * (outer_gpus // node),) * outer
    tried = len(items) <= _TRIED and not are_nested((*items, outer_gpus), full_node_gpus)
    found: list[Spot] = []
    for at, size in enumerate(items):
        rest = tuple(items[at + 1 :])
        for spot, left in _after(bins, size, node):
            if not tried or _fit(rest, _canonical(left), node):
                found.append(spot)
                bins = left
                break
        else:
            return found
    return found


@lru_cache(maxsize=100_000)
def _fit(items: tuple[int, ...], bins: Bins, node: int) -> bool:
    if not items:
        return True
    tried = {_canonical(left) for _, left in _after(bins, items[0], node)}
    return any(_fit(items[1:], left, node) for left in tried)


def _canonical(bins: Bins) -> Bins:
    return tuple(sorted(tuple(sorted(nodes)) for nodes in bins))


def _after(bins: Bins, size: int, node: int) -> Iterator[tuple[Spot, Bins]]:
    """List the spots for a block, and what is free once it is there."""
    for number, nodes in enumerate(bins):
        for used in _nodes_for(nodes, size, node):
            left = tuple(free - min(size, node) if at in used else free for at, free in enumerate(nodes))
            yield (number, used), (*bins[:number], left, *bins[number + 1 :])


def _nodes_for(nodes: tuple[int, ...], size: int, node: int) -> Iterator[tuple[int, ...]]:
    if size <= node:
        yield from ((at,) for at, free in enumerate(nodes) if free >= size)
        return
    whole = [at for at, free in enumerate(nodes) if free == node]
    if len(whole) * node >= size:
        yield tuple(whole[: size // node])

"""What a role of the running plan holds, and how much of it a new choice can keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libra_plan.planner.solvers.colgen.arrays import Floats

__all__ = ["HeldRole", "kept_by_block", "kept_by_mix"]


@dataclass(frozen=True)
class HeldRole:
    """GPUs a role holds: `on_node[name][node]` of each GPU class, `shares[name]` shared ones.

    `gpu_class[c]` and `size[c]` describe config c (size 0: a share); a GPU it does not hold yet
    costs `loss`.
    """

    gpu_class: tuple[str, ...]
    size: tuple[int, ...]
    on_node: Mapping[str, Mapping[str, int]]
    shares: Mapping[str, int]
    loss: float

    def extras(self, config: int, most: int) -> list[float]:
        """Give what each further replica of a config costs in moves, alone, cheapest first."""
        name, size = self.gpu_class[config], self.size[config]
        if size == 0:
            kept = min(most, self.shares.get(name, 0))
            return [0.0] * kept + [self.loss] * (most - kept)
        blocks = kept_by_block(self.on_node.get(name, {}), size)[:most]
        return [self.loss * (size - kept) for kept in blocks] + [self.loss * size] * (most - len(blocks))

    def moves(self, numbers: Floats) -> float:
        """Give what a mix costs in moves: `numbers[c]` replicas of config c."""
        cost = 0.0
        for name in set(self.gpu_class):
            blocks = [
                size
                for c, size in enumerate(self.size)
                if self.gpu_class[c] == name and size
                for _ in range(int(numbers[c]))
            ]
            shares = sum(
                int(n) for c, n in enumerate(numbers) if self.gpu_class[c] == name and not self.size[c]
            )
            cost += self.loss * (sum(blocks) - kept_by_mix(self.on_node.get(name, {}), blocks))
            cost += self.loss * max(0, shares - self.shares.get(name, 0))
        return cost


def kept_by_block(on_node: Mapping[str, int], size: int) -> list[int]:
    """Give how many held GPUs each of as many blocks of one size can keep, most first.

    Blocks of 16 take two whole nodes of 8.
    """
    counts = sorted(on_node.values(), reverse=True)
    if size > 8:
        nodes = size // 8
        return [sum(counts[i : i + nodes]) for i in range(0, len(counts), nodes)]
    kept = [size for count in counts for _ in range(count // size)]
    return kept + sorted((count % size for count in counts if count % size), reverse=True)


def kept_by_mix(on_node: Mapping[str, int], blocks: Sequence[int]) -> int:
    """Give how many held GPUs blocks of several sizes keep: the largest first, where most are."""
    left = sorted(on_node.values(), reverse=True)
    kept = 0
    for size in sorted(blocks, reverse=True):
        for _ in range(max(1, size // 8) if left else 0):
            at = max(range(len(left)), key=lambda i: min(left[i], size))
            take = min(left[at], size, 8)
            left[at] -= take
            kept += take
    return kept

"""What a role of the running plan holds, and how much of it a new choice can keep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from libra_plan.planner.optimize.colgen.arrays import Floats

__all__ = ["HeldRole", "kept_by_block", "kept_by_mix"]


@dataclass(frozen=True)
class HeldRole:
    """GPUs a role holds, whole or in part: `on_node[name][node]` of each GPU class.

    `gpu_class[c]`, `size[c]` and `quarters[c]` describe config c (size 0: a share of so many quarters
    of a GPU); a GPU it does not hold yet costs `loss`. All figures are the least that any placement
    moves, so that bounds hold.
    """

    gpu_class: tuple[str, ...]
    size: tuple[int, ...]
    quarters: tuple[float, ...]
    on_node: Mapping[str, Mapping[str, int]]
    loss: float
    known: dict[bytes, float] = field(default_factory=dict, compare=False, repr=False)
    """Moves of the mixes asked about so far."""

    def extras(self, config: int, most: int) -> list[float]:
        """Give what each further replica of a config costs in moves, alone, cheapest first."""
        name, size = self.gpu_class[config], self.size[config]
        on_node = self.on_node.get(name, {})
        if size == 0:
            part = self.quarters[config] / 4
            free = min(most, math.floor(sum(on_node.values()) / part))
            return [0.0] * free + [self.loss * part] * (most - free)
        blocks = kept_by_block(on_node, size)[:most]
        return [self.loss * (size - kept) for kept in blocks] + [self.loss * size] * (most - len(blocks))

    def moves(self, numbers: Floats) -> float:
        """Give what a mix costs in moves: `numbers[c]` replicas of config c."""
        key = numbers.tobytes()
        if key not in self.known:
            self.known[key] = self._moves(numbers)
        return self.known[key]

    def _moves(self, numbers: Floats) -> float:
        cost = 0.0
        for name in set(self.gpu_class):
            own = [c for c, each in enumerate(self.gpu_class) if each == name and numbers[c] > 0]
            blocks = [self.size[c] for c in own if self.size[c] for _ in range(int(numbers[c]))]
            parts = sum(float(numbers[c]) * self.quarters[c] / 4 for c in own if not self.size[c])
            on_node = self.on_node.get(name, {})
            kept = kept_by_mix(on_node, blocks)
            # Shares may live on held GPUs that no block keeps, and together on as few new ones as hold them.
            shared = math.ceil(max(0.0, parts - (sum(on_node.values()) - kept)) - 1e-9)
            cost += self.loss * (sum(blocks) - kept + shared)
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

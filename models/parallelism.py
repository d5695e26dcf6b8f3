"""How one replica of a role is split over GPUs, and which splits a model allows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from libra_plan.profiles.schema import ModelShape

__all__ = ["Layout", "RangedReplica", "layout_faults", "octaves_between"]


class ParallelDegrees(Protocol):
    """What states the degrees of one replica."""

    @property
    def tp(self) -> int:
        """Tensor parallelism."""

    @property
    def pp(self) -> int:
        """Pipeline parallelism."""

    @property
    def cp(self) -> int:
        """Context parallelism."""

    @property
    def ep(self) -> int:
        """Expert parallelism."""


@dataclass(frozen=True, slots=True, order=True)
class Layout:
    """Tensor, pipeline, context and expert parallel degrees of one replica.

    Data parallelism is the number of replicas. Experts are folded into the replica's GPUs, so
    GPUs per replica = tp·pp·cp.
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        if min(self.tp, self.pp, self.cp, self.ep) < 1:
            raise ValueError(f"parallel degrees must be ≥ 1: {self}")

    @classmethod
    def of(cls, degrees: ParallelDegrees) -> Layout:
        """Return the layout of whatever states its degrees: a point, a file's layout, a manifest's role."""
        return cls(degrees.tp, degrees.pp, degrees.cp, degrees.ep)

    @property
    def gpus_per_replica(self) -> int:
        """Count the GPUs of one replica."""
        return self.tp * self.pp * self.cp

    def __str__(self) -> str:
        degrees = (("tp", self.tp), ("pp", self.pp), ("cp", self.cp), ("ep", self.ep))
        return " ".join(f"{name}{value}" for name, value in degrees if value > 1) or "tp1"


@dataclass(frozen=True, slots=True)
class RangedReplica:
    """A rollout replica, the positions it serves, range(start, stop, stride), and the seconds they take.

    Position 0 is the longest trajectory, as predicted. `stride` is 1 but where one layout, dealt by rank,
    is best.
    """

    layout: Layout
    start: int
    stop: int
    stride: int
    time_s: float


def octaves_between(one: Layout, other: Layout) -> float:
    """Return how many doublings lie between two layouts, over all their degrees."""
    pairs = ((one.tp, other.tp), (one.pp, other.pp), (one.cp, other.cp), (one.ep, other.ep))
    return sum(abs(math.log2(ours / theirs)) for ours, theirs in pairs)


def layout_faults(layout: Layout, model: ModelShape) -> tuple[str, ...]:
    """List what forbids this split of a model: heads, feed-forward and experts divide by degrees."""
    return tuple(_faults(layout, model))


def _faults(layout: Layout, model: ModelShape) -> Iterator[str]:
    # KV heads may also be copied when there are fewer of them than tensor-parallel ranks
    whole_kv = model.kv_heads % layout.tp == 0 or layout.tp % model.kv_heads == 0
    if model.heads % layout.tp or not whole_kv:
        legal = [
            tp
            for tp in range(1, model.heads + 1)
            if model.heads % tp == 0 and (model.kv_heads % tp == 0 or tp % model.kv_heads == 0)
        ]
        heads = f"{model.heads} heads and {model.kv_heads} KV heads"
        yield f"tp {layout.tp} does not divide {heads}; legal: {', '.join(map(str, legal))}"
    if model.ffn % layout.tp:
        yield f"tp {layout.tp} does not divide the feed-forward size {model.ffn}"
    if model.layers % layout.pp:
        yield f"pp {layout.pp} does not divide {model.layers} layers"
    if (model.experts or 1) % layout.ep:
        yield f"ep {layout.ep} does not divide {model.experts or 'no'} experts"
    if (layout.tp * layout.cp) % layout.ep:
        yield f"ep {layout.ep} does not divide the {layout.tp * layout.cp} GPUs of a pipeline stage (tp·cp)"

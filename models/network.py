"""Seconds that GPUs spend on telling each other: data, context, expert and pipeline parallel traffic.

Ring collectives of n bytes over d ranks move (d − 1)/d·n a pass through each link: an all-reduce is
two passes; sharded states (ZeRO-3, FSDP) gather the weights twice and scatter the gradients once.
Every pass has d − 1 hops. Traffic is charged in full, as on top of the GPU's work: measured steps of
2 GPUs lie between none and all of it hidden. A host-bound step grows by hooks on every parameter
instead (`hook_s_per_layer` of the class).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from libra_plan.models.memory.states import gradient_bytes, weights_mib
from libra_plan.models.parallelism import Layout
from libra_plan.profiles.hardware import LinkConstants, gpu_class
from libra_plan.profiles.schema import ModelShape, Phase, Software
from libra_plan.profiles.units import GIB, MIB

__all__ = [
    "Link",
    "all_reduce_s",
    "all_to_all_s",
    "ranks_s",
    "ring_exchange_s",
    "stage_sends_s",
    "tensor_reduce_s",
]

_ACTIVATION_BYTES = 2.0
_FULLY_SHARDED = 3


@dataclass(frozen=True, slots=True)
class Link:
    """A link between GPUs of one class: its bandwidth, and whether it joins nodes."""

    gib_per_s: float
    across_nodes: bool = False
    gpu_class: str = "h200_sxm"

    @property
    def constants(self) -> LinkConstants:
        """How collectives use the links of the class."""
        return gpu_class(self.gpu_class).links

    @property
    def hop_s(self) -> float:
        """Seconds of one hop of a ring."""
        return self.constants.hop_across_nodes_s if self.across_nodes else self.constants.hop_s

    def moving_s(self, size_bytes: float) -> float:
        """Return the seconds that so many bytes take."""
        return size_bytes / (self.gib_per_s * self.constants.efficiency * GIB)


def all_reduce_s(size_bytes: float, ranks: int, link: Link, *, passes: int = 2) -> float:
    """Return the seconds of a ring collective; `passes` is 2 for all-reduce, 1 for gather or scatter."""
    if ranks <= 1:
        return 0.0
    moved = passes * (ranks - 1) / ranks * size_bytes
    return link.constants.call_s + passes * (ranks - 1) * link.hop_s + link.moving_s(moved)


def ranks_s(model: ModelShape, software: Software, layout: Layout, ranks: int, link: Link) -> float:
    """Return what data-parallel ranks exchange in one training step.

    Up to ZeRO-2 gradients are reduced (and scattered or gathered): two passes. ZeRO-3 and FSDP gather
    the weights for the forward and the backward pass, and scatter the gradients.
    """
    gradients = gradient_bytes(model, software, layout)
    if software.zero_stage < _FULLY_SHARDED:
        return all_reduce_s(gradients, ranks, link)
    weights = weights_mib(model, software, layout) * MIB
    return all_reduce_s(weights, ranks, link) + all_reduce_s(gradients, ranks, link, passes=1)


def _rounds(phase: Phase, software: Software) -> int:
    """Count how often a layer's traffic of one forward pass is repeated: backward costs it twice."""
    if phase != "train":
        return 1
    return 4 if software.recompute == "full" else 3


def ring_exchange_s(
    model: ModelShape, software: Software, phase: Phase, layout: Layout, tokens: float, link: Link
) -> float:
    """Return what ring attention passes on in one step: cp − 1 times each rank's keys and values.

    `tokens` of the whole replica; a rank holds 1/cp of them. The backward pass moves keys and values
    again, and their gradients; full recomputation repeats the forward pass.
    """
    if layout.cp == 1:
        return 0.0
    heads = max(model.kv_heads / layout.tp, 1.0)
    layers = model.layers / layout.pp
    held = tokens / layout.cp * 2 * heads * model.head_dim * _ACTIVATION_BYTES * layers
    return _rounds(phase, software) * (layout.cp - 1) * (layers * link.hop_s + link.moving_s(held))


def tensor_reduce_s(
    model: ModelShape, software: Software, phase: Phase, layout: Layout, tokens: float, link: Link
) -> float:
    """Return the least that tensor-parallel ranks need to add up their parts in one step.

    Every layer all-reduces its hidden states twice forward (after attention and after the
    feed-forward part; with sequence parallelism a gather and a scatter, of the same bytes) and twice
    backward; full recomputation repeats the forward ones. Small sums go by a tree of 2·log2(tp) hops.
    """
    if layout.tp == 1:
        return 0.0
    passes = 1 if phase != "train" else 3 if software.recompute == "full" else 2
    size = tokens / layout.cp * model.hidden * _ACTIVATION_BYTES
    moved = link.moving_s(2 * (layout.tp - 1) / layout.tp * size)
    return passes * 2 * model.layers / layout.pp * (2 * math.log2(layout.tp) * link.hop_s + moved)


def all_to_all_s(
    model: ModelShape,
    software: Software,
    phase: Phase,
    layout: Layout,
    tokens: float,
    experts_per_token: int,
    link: Link,
) -> float:
    """Return what experts on other ranks cost in one step: tokens go out and come back in every layer.

    Each of the replica's tp·cp ranks sends its share of the tokens, hidden size wide, to
    `experts_per_token` experts, (ep − 1)/ep of which are elsewhere.
    """
    if layout.ep == 1:
        return 0.0
    layers = model.layers / layout.pp
    sent = tokens / (layout.tp * layout.cp) * experts_per_token * model.hidden * _ACTIVATION_BYTES
    moved = link.moving_s(2 * (layout.ep - 1) / layout.ep * sent * layers)
    return _rounds(phase, software) * (2 * (layout.ep - 1) * layers * link.hop_s + moved)


def stage_sends_s(model: ModelShape, phase: Phase, layout: Layout, tokens: float, link: Link) -> float:
    """Return what one micro-batch costs to pass p − 1 stage borders, forward and, in training, back."""
    size = tokens / layout.cp * model.hidden * _ACTIVATION_BYTES / layout.tp
    directions = 2 if phase == "train" else 1
    return directions * (layout.pp - 1) * (link.constants.call_s + link.moving_s(size))

"""Seconds that GPUs spend on telling each other: data, context, expert and pipeline parallel traffic.

Ring collectives of n bytes over d ranks move (d − 1)/d·n a pass through each link: an all-reduce is
two passes; sharded states (ZeRO-3, FSDP) gather the weights twice and scatter the gradients once.
Every pass has d − 1 hops. Traffic is charged in full, as on top of the GPU's work: measured steps of
2 GPUs lie between none and all of it hidden. A host-bound step grows by hooks on every parameter
instead.
"""

from __future__ import annotations

import math

from libra_plan.models.memory.states import adapter_params, weights_mib
from libra_plan.models.parallelism import Layout
from libra_plan.profiles.schema import ModelShape, Phase, Software
from libra_plan.profiles.units import GIB, MIB

__all__ = [
    "HOOK_S_PER_LAYER",
    "all_reduce_s",
    "all_to_all_s",
    "gradient_bytes",
    "ranks_s",
    "ring_exchange_s",
    "stage_sends_s",
    "tensor_reduce_s",
]

HOOK_S_PER_LAYER = 2.5e-3
"""Host seconds per layer that DistributedDataParallel adds to a launch-bound step: 2.42 ms (24
layers) and 2.57 ms (28 layers), measured on 2 H200."""
LINK_EFFICIENCY = 0.89
"""NCCL all-reduce against copy bandwidth between the same two GPUs: 326 of 366 GiB/s at 14 GiB."""
_LATENCY_S = 0.3e-3
_HOP_S = {False: 3.4e-6, True: 14e-6}
"""One hop of a ring within a node (NVLink) and across nodes: NCCL's own tuning tables, Simple protocol."""
_ACTIVATION_BYTES = 2.0
_FULLY_SHARDED = 3


def gradient_bytes(model: ModelShape, software: Software, layout: Layout) -> float:
    """Count the gradient bytes of one rank: 4 per trained parameter with fp32 masters, else 2."""
    width = 4.0 if software.precision.startswith("fp32") else 2.0
    trained = model.params if software.lora_rank is None else adapter_params(model, software.lora_rank)
    return width * trained / (layout.tp * layout.pp)


def all_reduce_s(
    size_bytes: float, ranks: int, gib_per_s: float, *, passes: int = 2, across_nodes: bool = False
) -> float:
    """Give the seconds of a ring collective; `passes` is 2 for all-reduce, 1 for gather or scatter."""
    if ranks <= 1:
        return 0.0
    moved = passes * (ranks - 1) / ranks * size_bytes
    hops = passes * (ranks - 1) * _HOP_S[across_nodes]
    return _LATENCY_S + hops + moved / (gib_per_s * LINK_EFFICIENCY * GIB)


def ranks_s(
    model: ModelShape,
    software: Software,
    layout: Layout,
    ranks: int,
    gib_per_s: float,
    *,
    across_nodes: bool = False,
) -> float:
    """Give what data-parallel ranks exchange in one training step.

    Up to ZeRO-2 gradients are reduced (and scattered or gathered): two passes. ZeRO-3 and FSDP gather
    the weights for the forward and the backward pass, and scatter the gradients.
    """
    gradients = gradient_bytes(model, software, layout)
    if software.zero_stage < _FULLY_SHARDED:
        return all_reduce_s(gradients, ranks, gib_per_s, across_nodes=across_nodes)
    weights = weights_mib(model, software, layout) * MIB
    gather = all_reduce_s(weights, ranks, gib_per_s, passes=2, across_nodes=across_nodes)
    return gather + all_reduce_s(gradients, ranks, gib_per_s, passes=1, across_nodes=across_nodes)


def _rounds(phase: Phase, software: Software) -> int:
    """Count how often a layer's traffic of one forward pass is repeated: backward costs it twice."""
    if phase != "train":
        return 1
    return 4 if software.recompute == "full" else 3


def ring_exchange_s(
    model: ModelShape,
    software: Software,
    phase: Phase,
    layout: Layout,
    tokens: float,
    gib_per_s: float,
    *,
    across_nodes: bool = False,
) -> float:
    """Give what ring attention passes on in one step: cp − 1 times each rank's keys and values.

    `tokens` of the whole replica; a rank holds 1/cp of them. The backward pass moves keys and values
    again, and their gradients; full recomputation repeats the forward pass.
    """
    if layout.cp == 1:
        return 0.0
    heads = max(model.kv_heads / layout.tp, 1.0)
    layers = model.layers / layout.pp
    held = tokens / layout.cp * 2 * heads * model.head_dim * _ACTIVATION_BYTES * layers
    times = _rounds(phase, software) * (layout.cp - 1)
    return times * (layers * _HOP_S[across_nodes] + held / (gib_per_s * LINK_EFFICIENCY * GIB))


def tensor_reduce_s(
    model: ModelShape,
    software: Software,
    phase: Phase,
    layout: Layout,
    tokens: float,
    gib_per_s: float,
    *,
    across_nodes: bool = False,
) -> float:
    """Give the least that tensor-parallel ranks need to add up their parts in one step.

    Every layer all-reduces its hidden states twice forward (after attention and after the
    feed-forward part; with sequence parallelism a gather and a scatter, of the same bytes) and twice
    backward; full recomputation repeats the forward ones. Small sums go by a tree of 2·log2(tp) hops.
    """
    if layout.tp == 1:
        return 0.0
    passes = 1 if phase != "train" else 3 if software.recompute == "full" else 2
    size = tokens / layout.cp * model.hidden * _ACTIVATION_BYTES
    moved = 2 * (layout.tp - 1) / layout.tp * size / (gib_per_s * LINK_EFFICIENCY * GIB)
    hops = 2 * math.log2(layout.tp) * _HOP_S[across_nodes]
    return passes * 2 * model.layers / layout.pp * (hops + moved)


def all_to_all_s(
    model: ModelShape,
    software: Software,
    phase: Phase,
    layout: Layout,
    tokens: float,
    experts_per_token: int,
    gib_per_s: float,
    *,
    across_nodes: bool = False,
) -> float:
    """Give what experts on other ranks cost in one step: tokens go out and come back in every layer.

    Each of the replica's tp·cp ranks sends its share of the tokens, hidden size wide, to
    `experts_per_token` experts, (ep − 1)/ep of which are elsewhere.
    """
    if layout.ep == 1:
        return 0.0
    layers = model.layers / layout.pp
    sent = tokens / (layout.tp * layout.cp) * experts_per_token * model.hidden * _ACTIVATION_BYTES
    moved = 2 * (layout.ep - 1) / layout.ep * sent * layers
    hops = 2 * (layout.ep - 1) * layers * _HOP_S[across_nodes]
    return _rounds(phase, software) * (hops + moved / (gib_per_s * LINK_EFFICIENCY * GIB))


def stage_sends_s(model: ModelShape, phase: Phase, layout: Layout, tokens: float, gib_per_s: float) -> float:
    """Give what one micro-batch costs to pass p − 1 stage borders, forward and, in training, back."""
    if layout.pp == 1:
        return 0.0
    size = tokens / layout.cp * model.hidden * _ACTIVATION_BYTES / layout.tp
    directions = 2 if phase == "train" else 1
    return directions * (layout.pp - 1) * (_LATENCY_S + size / (gib_per_s * LINK_EFFICIENCY * GIB))

"""Bytes a model keeps on one GPU whatever the batch: weights, gradients, optimizer states.

A step of one micro-batch begins without gradients: by the time all of them exist, most activations
are gone. With accumulation every micro-batch but the first finds them there, and data-parallel ranks
keep them in the buckets they are reduced in. The pass then peaks higher by what a micro-batch alone
does not have yet at its peak: all gradients when that is the loss's, all but the input table's when
it is the backward pass's. Measured on H200 at 16,384 tokens (`profiles/h200c-*` against `h200b-*`):
all of them at 0.5B and 1.5B, whose tables are one, and 55 % of them at 7B, whose tables are two.
"""

from __future__ import annotations

from dataclasses import replace

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin, weakest
from libra_plan.profiles.hardware import bytes_per_weight
from libra_plan.profiles.schema import ModelShape, ProfileFile, Software
from libra_plan.profiles.units import MIB

__all__ = [
    "adapter_mib",
    "adapter_params",
    "gradient_bytes",
    "gradients_mib",
    "kv_mib_per_token",
    "micro_batches_of",
    "optimizer_mib",
    "standing_mib",
    "state_mib",
    "tables_of",
    "weights_mib",
    "with_held_gradients",
]

_GRADIENT_BYTES = 2.0


def tables_of(model: ModelShape) -> int:
    """Count the tables of words: 2 where input and output do not share one (a gated transformer's sizes)."""
    attention = 2 * model.hidden * model.head_dim * (model.heads + model.kv_heads)
    body = model.layers * (attention + 3 * model.hidden * model.ffn)
    return 2 if model.params - body > 1.5 * model.vocab * model.hidden else 1


def kv_mib_per_token(model: ModelShape, software: Software, layout: Layout) -> float:
    """Return the MiB of one token's keys and values on one GPU; KV heads fewer than ranks are copied."""
    heads = max(model.kv_heads / layout.tp, 1.0)
    width = bytes_per_weight(software.kv_precision) if software.kv_precision else 2.0
    return 2.0 * model.layers / layout.pp * heads * model.head_dim * width / MIB


def weights_mib(model: ModelShape, software: Software, layout: Layout) -> float:
    """Return the MiB of one GPU's weights in the precision of the forward pass.

    Experts are split over the replica's GPUs like everything else; with more expert than tensor
    parallelism they take less than this.
    """
    return bytes_per_weight(software.precision) * model.params / (layout.tp * layout.pp) / MIB


def standing_mib(profile: ProfileFile, layout: Layout, ranks: int) -> float:
    """Return the MiB per GPU that a role keeps whatever its batch: training states, or weights."""
    if profile.phase == "train":
        return state_mib(profile.model, profile.software, layout, ranks)
    return weights_mib(profile.model, profile.software, layout)


def adapter_params(model: ModelShape, rank: int) -> int:
    """Count LoRA's parameters: r·(in + out) beside each of the seven projections of every layer.

    Queries, keys, values, output, gate, up and down; with experts, one adapter for all of them.
    """
    attention = model.heads * model.head_dim
    keys = model.kv_heads * model.head_dim
    sides = (
        2 * (model.hidden + attention)  # queries and output
        + 2 * (model.hidden + keys)
        + 3 * (model.hidden + model.ffn)
    )
    return rank * sides * model.layers


def adapter_mib(model: ModelShape, rank: int) -> float:
    """Return the MiB of an adapter in bf16 that an engine holds, an upper bound on any of its GPUs.

    Engines shard adapters in part at most, so they are counted whole.
    """
    return 2.0 * adapter_params(model, rank) / MIB


def state_mib(model: ModelShape, software: Software, layout: Layout, ranks: int) -> float:
    """Return the MiB of one rank's training states at a ZeRO stage over `ranks` ranks.

    Adam with fp32 masters: 2 + 2 + 12 bytes per parameter (weights, gradients, optimizer), of which
    ZeRO-1 shards the optimizer, ZeRO-2 also gradients, ZeRO-3 and FSDP all. Pure bf16: 2 + 2 + 4.
    With LoRA only the adapters have gradients and optimizer states; the model itself is frozen and
    ZeRO-3 shards it too.
    """
    split = layout.tp * layout.pp * MIB
    if software.lora_rank is None:
        return _bytes_per_param(software, ranks) * model.params / split
    frozen = weights_mib(model, software, layout) / (ranks if software.zero_stage == 3 else 1)
    return frozen + _bytes_per_param(software, ranks) * adapter_params(model, software.lora_rank) / split


def gradient_bytes(model: ModelShape, software: Software, layout: Layout) -> float:
    """Return the gradient bytes of one rank: 4 per trained parameter with fp32 masters, else 2."""
    width = 4.0 if software.precision.startswith("fp32") else 2.0
    return width * _trained_params(model, software) / (layout.tp * layout.pp)


def _trained_params(model: ModelShape, software: Software) -> int:
    return model.params if software.lora_rank is None else adapter_params(model, software.lora_rank)


def gradients_mib(model: ModelShape, software: Software, layout: Layout, ranks: int) -> float:
    """Return the MiB that `state_mib` counts for one rank's gradients: 2 bytes of what is trained."""
    whole = _GRADIENT_BYTES * _trained_params(model, software) / (layout.tp * layout.pp * MIB)
    return whole / (ranks if software.zero_stage >= 2 else 1)


def optimizer_mib(model: ModelShape, software: Software, layout: Layout, ranks: int) -> float:
    """Return the MiB of one rank's optimizer states: masters and moments of what is trained."""
    whole = _optimizer_bytes(software) * _trained_params(model, software) / (layout.tp * layout.pp * MIB)
    return whole / (ranks if software.zero_stage >= 1 else 1)


def _optimizer_bytes(software: Software) -> float:
    return 4.0 if software.precision == "bf16" else 12.0


def _bytes_per_param(software: Software, ranks: int) -> float:
    shares = [2.0, _GRADIENT_BYTES, _optimizer_bytes(software)]
    sharded = software.zero_stage  # stage s shards the last s of (weights, gradients, optimizer)
    return sum(
        share / ranks if index >= len(shares) - sharded else share for index, share in enumerate(shares)
    )


def micro_batches_of(profile: ProfileFile) -> int:
    """Return of how many micro-batches the measured steps were: the flag `micro_batches`, else 1."""
    said = profile.software.flags.get("micro_batches", 1)
    return said if isinstance(said, int) else 1


def with_held_gradients(
    profile: ProfileFile, layout: Layout, ranks: int, micro_batches: int, memory: Estimate
) -> Estimate:
    """Raise a training step's peak (MiB per GPU) by gradients that its profile did not see held.

    The bound takes all of them: in a short micro-batch the peak that was measured may be another one.
    Profiles that measured several micro-batches say so in their flag `micro_batches`.
    """
    if max(micro_batches, ranks) == 1 or micro_batches_of(profile) > 1:
        return memory
    model, software = profile.model, profile.software
    gradients = gradient_bytes(model, software, layout) / MIB
    if software.zero_stage >= 2:
        gradients /= ranks
    own_tables = tables_of(model) > 1 and software.lora_rank is None
    last = model.vocab * model.hidden / model.params if own_tables else 0.0
    origin = weakest(memory.origin, Origin.EXTRAPOLATED)
    value = memory.value + gradients * (1.0 - last)
    return replace(memory, value=value, high=memory.high + gradients, origin=origin)
